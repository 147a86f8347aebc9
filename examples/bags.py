"""Bags of look-alikes from any features: yours, DINO's, a captioner's; one row per picture."""

import numpy as np

from tellapart.bags import curate_bags, mine_bags

features = np.random.default_rng(0).standard_normal((200, 64)).astype(np.float32)
names = [f"photo_{row:03}.jpg" for row in range(len(features))]
bags = mine_bags(features, size=3, ids=names)  # a bag for each picture: itself, then its nearest
for bag in curate_bags(bags)[:5]:  # the most alike first, and no picture twice
    print(f"{bag.similarity:.3f}", *bag.ids)
