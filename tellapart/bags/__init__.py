"""Bags of look-alikes: mined from anybody's pictures, for benchmarks and for training."""

from tellapart.bags.mine import Bag, TrainingBags, curate_bags, mine_bags, multimodal, training_bags
from tellapart.bags.search import Neighbours, nearest_neighbours

__all__ = [
    "Bag",
    "Neighbours",
    "TrainingBags",
    "curate_bags",
    "mine_bags",
    "multimodal",
    "nearest_neighbours",
    "training_bags",
]
