"""Computes how similar the pictures within a bag are (paper 2)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tellapart.features.nearest import Vectors

Similarity = Literal["query", "pairs"]
SIMILARITIES: tuple[Similarity, ...] = ("query", "pairs")


def intra_bag_similarity(vectors: Vectors, bag_MS: np.ndarray, similarity: Similarity = "query") -> np.ndarray:
    """Computes the intra-bag similarity α of each bag, M float64 in [−1, 1] (paper 2).

    bag_MS: rows of ``vectors``, with the query first.
    similarity: "query": mean cosine between the query and its neighbours (algorithm 1, line 14); "pairs": mean
        cosine over all pairs (section 3.1).
    """
    if not len(bag_MS):
        return np.zeros(0)
    alpha_M: np.ndarray = bag_cosines(vectors, bag_MS, similarity).mean(1)
    return alpha_M


def bag_cosines(vectors: Vectors, bag_MS: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Computes the cosines M×P within each bag, between the query and its neighbours or between all pairs."""
    size = bag_MS.shape[1]
    first, second = np.triu_indices(size, 1)
    if similarity == "query":
        first, second = first[: size - 1], second[: size - 1]
    return vectors.cosines(bag_MS[:, first].ravel(), bag_MS[:, second].ravel()).reshape(len(bag_MS), -1)
