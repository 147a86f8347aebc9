"""Builds disjoint bags for training from nearest neighbours (paper 2, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TrainingBags:
    """Disjoint bags for training. ``loose_L``: rows of the pictures that are in no bag."""

    size: int
    bags_MS: np.ndarray
    loose_L: np.ndarray

    def line(self) -> str:
        """Formats the numbers of bags and pictures on one line."""
        total = self.bags_MS.size + len(self.loose_L)
        line = f"bags of {self.size}: {len(self.bags_MS):,}, containing {self.bags_MS.size:,} of {total:,} pictures"
        if not len(self.loose_L):
            return line
        return f"{line}; {len(self.loose_L):,} pictures without free look-alikes were grouped at random"


def training_bags(rows_NK: np.ndarray, size: int) -> TrainingBags:
    """Builds disjoint bags of ``size`` from each picture's nearest neighbours (200 in the paper; appendix B.2).

    Goes through the pictures in order. A picture that is not in a bag forms one with its ``size − 1`` nearest
    neighbours that are not in a bag either. If there are too few, the picture has no bag unless a later bag includes
    it.
    """
    free_N = np.ones(len(rows_NK), bool)
    bags: list[np.ndarray] = []
    for row, nearest_K in enumerate(rows_NK):
        if not free_N[row]:
            continue
        nearest_K = nearest_K[free_N[nearest_K] & (nearest_K >= 0)][: size - 1]
        if len(nearest_K) == size - 1:
            bag_S = np.concatenate([[row], nearest_K])
            free_N[bag_S] = False
            bags.append(bag_S)
    bags_MS = np.stack(bags) if bags else np.zeros((0, size), np.int64)
    return TrainingBags(size, bags_MS.astype(np.int64), np.flatnonzero(free_N))
