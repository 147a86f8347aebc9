"""Bags of look-alikes, mined from any pictures, for benchmarks and training."""

from __future__ import annotations

from tellapart.bags.file import Bag
from tellapart.bags.mine import (
    TrainingBags,
    curate_bags,
    mine_bags,
    multimodal,
    training_bags,
)
from tellapart.features.nearest import Neighbours, nearest_neighbours

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
