"""Nearest neighbours of all pictures in a data set: exact, or approximate for a million pictures or more."""

from __future__ import annotations

import numpy as np

from tellapart.features.approximate import APPROXIMATE_FROM, approximate_neighbours
from tellapart.features.nearest import BLOCK, Exclusions, Neighbours, Vectors, nearest_among


def nearest_neighbours(
    features_ND: np.ndarray | Vectors,
    k: int,
    *,
    max_cosine: float | None = None,
    block: int = BLOCK,
    approximate: bool | None = None,
    progress: bool = True,
) -> Neighbours:
    """Finds the k pictures nearest to each picture, by the cosine of their features.

    Neighbours are ordered by cosine in float64, rounded to nine digits. Ties are broken by row, independently of
    ``block``.

    features_ND: rows need not be normalized.
    max_cosine: exclude pictures with a higher cosine (in paper 3, pictures at 0.8 and above are near-duplicates).
    approximate: whether to use FAISS (extra ``faiss``); None: use it for a million pictures or more. Its recall is
        measured against the exact search on a sample of the pictures, and printed.

    Raises `UsageError` for features that are not finite.
    """
    vectors = features_ND if isinstance(features_ND, Vectors) else Vectors.of(features_ND)
    n = len(vectors)
    k = max(0, min(k, n - 1))
    if k == 0:
        return Neighbours(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32))
    if approximate if approximate is not None else n >= APPROXIMATE_FROM:
        return approximate_neighbours(vectors.unit_ND, k, max_cosine=max_cosine, progress=progress)
    row_N = np.arange(n)
    label = f"nearest neighbours ({block:,} pictures per block)" if progress else None
    return nearest_among(vectors, vectors, k, Exclusions(row_N, row_N, max_cosine), block=block, label=label)
