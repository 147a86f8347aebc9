"""Curates bags from the neighbours found by a large search, and measures the search's recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.bags.large import PICTURES_PER_BLOCK, LargeSearch
from tellapart.features.approximate import share_found
from tellapart.features.nearest import Exclusions, Vectors, nearest_among
from tellapart.utils.blocks import blocks_of
from tellapart.utils.progress import Progress


@dataclass(frozen=True)
class CuratedBags:
    """Disjoint bags of one size, most similar first: rows M×size, and intra-bag similarities α, M."""

    rows_MS: np.ndarray
    similarity_M: np.ndarray


def curate(search: LargeSearch, size: int) -> CuratedBags:
    """Selects disjoint bags, most similar first; a bag is a picture and its nearest neighbours (paper 2, algorithms 1,
    2).
    """
    features = search.features
    similarity_N = np.empty(len(features), np.float32)
    for number, first in enumerate(features.first_S[:-1]):
        near = search.neighbours(number)
        for start in range(0, len(near), PICTURES_PER_BLOCK):
            cosine_BK = near[start : start + PICTURES_PER_BLOCK]["cosine"][:, : size - 1].astype(np.float64)
            whole = slice(first + start, first + start + len(cosine_BK))
            similarity_N[whole] = cosine_BK.mean(1)  # −inf if there are too few neighbours
    order_N = np.argsort(-np.round(similarity_N, 7), kind="stable")
    order_N = order_N[: np.count_nonzero(similarity_N > -np.inf)]
    free_N = np.ones(len(features), bool)
    first_S = np.array(features.first_S)
    rows_MS, count = np.empty((len(order_N) // size, size), np.int64), 0
    for row_B in blocks_of(order_N, PICTURES_PER_BLOCK):
        row_B = row_B[free_N[row_B]]
        bag_BS = np.empty((len(row_B), size), np.int64)
        bag_BS[:, 0] = row_B
        shard_B = np.searchsorted(first_S, row_B, side="right") - 1
        for shard in np.unique(shard_B):
            here = shard_B == shard
            # opened briefly, because there can be more files than a process can open
            near = search.neighbours(int(shard))
            bag_BS[here, 1:] = near[row_B[here] - first_S[shard]]["row"][:, : size - 1]
        for bag_S in bag_BS[free_N[bag_BS].all(1)]:
            if free_N[bag_S].all():
                free_N[bag_S] = False
                rows_MS[count] = bag_S
                count += 1
    rows_MS = rows_MS[:count]
    return CuratedBags(rows_MS, similarity_N[rows_MS[:, 0]])


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
