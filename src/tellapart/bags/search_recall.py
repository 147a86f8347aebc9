"""Measures the recall of a large search, against an exact search for a sample of pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.bags.large_search import PICTURES_PER_BLOCK, LargeSearch, nearest_pairs
from tellapart.bags.row_files import NO_PAIR, NOT_FOUND
from tellapart.features.nearest import Exclusions, Vectors, nearest_among, share_found
from tellapart.utils.progress import Progress


def recall(search: LargeSearch, tops: Sequence[int], queries: int, progress: bool = True) -> list[float]:
    """Returns recall@k of the neighbours for each k in ``tops``, measured on ``queries`` random pictures.

    The ground truth is an exact, blockwise search over all features, with the tie rule of `features.nearest`.
    """
    features, most = search.features, max(tops)
    row_Q = np.sort(np.random.default_rng([0, 1]).choice(len(features), min(queries, len(features)), replace=False))
    query = Vectors.of(search.rows_of("features", row_Q))
    exact_QK = np.full((len(row_Q), most), NO_PAIR)
    with Progress(len(features), "exact neighbours of a sample", enabled=progress) as shown:
        for start in range(0, len(features), PICTURES_PER_BLOCK):
            row_B = np.arange(start, min(start + PICTURES_PER_BLOCK, len(features)))
            gallery = Vectors.of(search.rows_of("features", row_B))
            near = nearest_among(query, gallery, most, Exclusions(row_Q, row_B, search.max_cosine))
            pair_QK = np.full(near.rows_NK.shape, NO_PAIR)
            pair_QK["row"] = np.where(near.rows_NK >= 0, row_B[near.rows_NK], NOT_FOUND)
            pair_QK["cosine"] = near.cosine_NK
            exact_QK = nearest_pairs(np.concatenate([exact_QK, pair_QK], 1), most)
            shown.advance(len(row_B))
    found_QK = search.rows_of(search.result, row_Q)["row"]
    return [share_found(exact_QK["row"][:, :top], found_QK[:, :top]) for top in tops]
