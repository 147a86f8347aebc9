"""Selects disjoint bags, most similar first, from the neighbours of a large search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tellapart.bags.large_search import PICTURES_PER_BLOCK, LargeSearch
from tellapart.utils.blocks import blocks_of


@dataclass(frozen=True)
class CuratedBags:
    """Disjoint bags of one size, most similar first: rows M×size, and intra-bag similarities α, M."""

    rows_MS: np.ndarray
    similarity_M: np.ndarray


def curate(search: LargeSearch, size: int) -> CuratedBags:
    """Selects disjoint bags, most similar first (paper 2, algorithms 1 and 2).

    A bag consists of a picture and its nearest neighbours. Similarities are rounded to seven digits, because their
    cosines are float32; ties keep the order of rows.
    """
    n = len(search.features)
    similarity_N = np.empty(n, np.float32)
    for start in range(0, n, PICTURES_PER_BLOCK):
        row_B = np.arange(start, min(start + PICTURES_PER_BLOCK, n))
        cosine_BK = search.rows_of(search.result, row_B)["cosine"][:, : size - 1]
        similarity_N[row_B] = cosine_BK.astype(np.float64).mean(1)  # −inf if there are too few neighbours
    order_N = np.argsort(-np.round(similarity_N, 7), kind="stable")
    order_N = order_N[: np.count_nonzero(similarity_N > -np.inf)]
    free_N = np.ones(n, bool)
    rows_MS, count = np.empty((n // size, size), np.int64), 0  # bags are disjoint
    for row_B in blocks_of(order_N, PICTURES_PER_BLOCK):
        row_B = row_B[free_N[row_B]]
        if not len(row_B):
            continue
        bag_BS = np.empty((len(row_B), size), np.int64)
        bag_BS[:, 0] = row_B
        ascending = np.argsort(row_B)
        bag_BS[ascending, 1:] = search.rows_of(search.result, row_B[ascending])["row"][:, : size - 1]
        for bag_S in bag_BS[free_N[bag_BS].all(1)]:
            if free_N[bag_S].all():
                free_N[bag_S] = False
                rows_MS[count] = bag_S
                count += 1
    rows_MS = rows_MS[:count]
    return CuratedBags(rows_MS, similarity_N[rows_MS[:, 0]])
