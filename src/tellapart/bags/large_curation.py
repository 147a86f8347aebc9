"""Neighbours of rows put together, and the bags that are made of them: paper 2, algorithms 1 and 2, from files.

While bags are curated, 36 bytes are held for each picture, ids included, and 10 more for each further size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tellapart.bags.clusters import NOT_FOUND
from tellapart.bags.disk import PAIR
from tellapart.bags.large_files import SearchFiles
from tellapart.features.nearest import DIGITS

BLOCK = 65536  # pictures curated at a time


def nothing_found(*shape: int) -> np.ndarray:
    """Neighbours that are none."""
    pairs = np.empty(shape, PAIR)
    pairs["row"], pairs["cosine"] = NOT_FOUND, -np.inf
    return pairs


def nearest_pairs(pair_BA: np.ndarray, k: int) -> np.ndarray:
    """The k nearest of each row's candidates, each picture once, by the tie rule of `features.nearest`."""
    row_BA, cosine_BA = pair_BA["row"], np.where(pair_BA["row"] >= 0, pair_BA["cosine"], -np.inf)
    by_row = np.lexsort((-cosine_BA, row_BA), axis=1)
    row_BA, cosine_BA = (np.take_along_axis(array, by_row, 1) for array in (row_BA, cosine_BA))
    cosine_BA[:, 1:][row_BA[:, 1:] == row_BA[:, :-1]] = -np.inf  # a picture that both clusters have
    order_BK = np.lexsort((row_BA, -np.round(cosine_BA.astype(np.float64), DIGITS)), axis=1)[:, :k]
    found = np.empty((len(pair_BA), k), PAIR)
    found["cosine"] = np.take_along_axis(cosine_BA, order_BK, 1)
    found["row"] = np.where(found["cosine"] > -np.inf, np.take_along_axis(row_BA, order_BK, 1), NOT_FOUND)
    return found


@dataclass(frozen=True)
class CuratedBags:
    """Bags of one size that share no picture, the most alike first: rows M×size, and α of each."""

    rows_MS: np.ndarray
    similarity_M: np.ndarray


def curate(search: SearchFiles, size: int) -> CuratedBags:
    """Algorithms 1 and 2 of paper 2: of each picture and its nearest, the most alike that share no picture."""
    features = search.features
    similarity_N = np.empty(len(features), np.float32)
    for number, first in enumerate(features.first_S[:-1]):
        near = search.neighbours(number)
        for start in range(0, len(near), BLOCK):
            cosine_BK = near[start : start + BLOCK]["cosine"][:, : size - 1].astype(np.float64)
            whole = slice(first + start, first + start + len(cosine_BK))
            similarity_N[whole] = cosine_BK.mean(1)  # −inf where there are too few
    order_N = np.argsort(-np.round(similarity_N, 7), kind="stable")
    order_N = order_N[: np.count_nonzero(similarity_N > -np.inf)]
    free_N = np.ones(len(features), bool)
    first_S = np.array(features.first_S)
    rows_MS, count = np.empty((len(order_N) // size, size), np.int64), 0
    for start in range(0, len(order_N), BLOCK):
        row_B = order_N[start : start + BLOCK]
        row_B = row_B[free_N[row_B]]
        bag_BS = np.empty((len(row_B), size), np.int64)
        bag_BS[:, 0] = row_B
        shard_B = np.searchsorted(first_S, row_B, side="right") - 1
        for shard in np.unique(shard_B):
            here = shard_B == shard
            near = search.neighbours(int(shard))  # open for the moment: there may be more files than a process may open
            bag_BS[here, 1:] = near[row_B[here] - first_S[shard]]["row"][:, : size - 1]
        for bag_S in bag_BS[free_N[bag_BS].all(1)]:
            if free_N[bag_S].all():
                free_N[bag_S] = False
                rows_MS[count] = bag_S
                count += 1
    rows_MS = rows_MS[:count]
    return CuratedBags(rows_MS, similarity_N[rows_MS[:, 0]])
