"""Measures the recall of a large search, against an exact search for a sample of pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.bags.large import PICTURES_PER_BLOCK, LargeSearch
from tellapart.features.approximate import share_found
from tellapart.features.nearest import Exclusions, Vectors, nearest_among
from tellapart.utils.progress import Progress


def recall(search: LargeSearch, tops: Sequence[int], queries: int, progress: bool = True) -> list[float]:
    """Returns recall@k of the neighbours for each k in ``tops``, measured on ``queries`` random pictures.

    The ground truth is an exact, blockwise search over all features, with the tie rule of `features.nearest`.
    """
    features, most = search.features, max(tops)
    n = len(features)
    row_Q = np.sort(np.random.default_rng([0, 1]).choice(n, min(queries, n), replace=False))
    query = Vectors.of(search.read(row_Q))
    exact_QK = np.full((len(row_Q), most), -1, np.int64)
    cosine_QK = np.full((len(row_Q), most), -np.inf, np.float32)
    with Progress(n, "exact neighbours of a sample", enabled=progress) as shown:
        for first, shard in zip(features.first_S, features.shards, strict=False):
            for start in range(0, shard.rows, PICTURES_PER_BLOCK):
                part = slice(start, min(start + PICTURES_PER_BLOCK, shard.rows))
                row_B = np.arange(first + part.start, first + part.stop)
                gallery = Vectors.of(shard.read(part))
                near = nearest_among(
                    query, gallery, min(most, len(gallery)), Exclusions(row_Q, row_B, search.max_cosine), label=None
                )
                row_QK = np.where(near.rows_NK >= 0, row_B[near.rows_NK], -1)
                cosine_QA = np.concatenate([cosine_QK, near.cosine_NK], 1)
                order_QK = np.argsort(-cosine_QA, axis=1, kind="stable")[:, :most]
                cosine_QK = np.take_along_axis(cosine_QA, order_QK, 1)
                exact_QK = np.take_along_axis(np.concatenate([exact_QK, row_QK], 1), order_QK, 1)
                shown.advance(part.stop - part.start)
    found_QK = np.full_like(exact_QK, -1)
    shard_Q = np.searchsorted(features.first_S, row_Q, side="right") - 1
    for number in np.unique(shard_Q):
        here = shard_Q == number
        near = search.neighbours(int(number))[row_Q[here] - features.first_S[number]]
        found_QK[here, : search.k] = near["row"][:, :most]
    return [share_found(exact_QK[:, :top], found_QK[:, :top]) for top in tops]
