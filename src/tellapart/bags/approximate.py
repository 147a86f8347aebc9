"""The nearest neighbours among a million pictures and more, by FAISS (extra ``faiss``): most of them, not all.

Pictures lie in cells; a picture is compared with those of the nearest sixteenth of the cells, first by codes of four
bits for two numbers, then the best of these by the features themselves. What that misses is measured.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra
from tellapart.features.nearest import ROUNDING, Exclusions, Neighbours, Vectors, nearest_among
from tellapart.progress import Progress
from tellapart.utils.messages import say

APPROXIMATE_FROM = 1_000_000  # pictures: from here on FAISS, unless the caller chooses
RECALL_SAMPLE = 2000  # pictures whose exact neighbours are sought, to see what share of them is found
FIT_SAMPLE = 64 * 1024  # pictures that cells and codes are made from
PER_CELL = 39  # pictures that FAISS wants at least to place a cell
CODES = 16  # of four bits
PROBED_SHARE = 1 / 16  # share of the cells that are looked through
REFINE_FACTOR = 16  # times as many as are wanted, the best by their codes, are compared by their features
QUERY_BLOCK = 4096  # at a time
ADD_BLOCK = 16384  # pictures added to the index at a time
MIN_REQUEST = 16  # asked for at first where near-duplicates are left out, so that few neighbours are found as well
MAX_WIDENING = 16  # times as many pictures, of as many cells, are looked at where the nearest are near-duplicates


@dataclass(frozen=True)
class ApproximateSearch:
    """What an approximate search found, and the seconds that it took: to build the index, and to search it."""

    neighbours: Neighbours
    build_seconds: float
    search_seconds: float
    recall_seconds: float


def approximate_neighbours(
    unit_ND: np.ndarray, k: int, *, max_cosine: float | None = None, progress: bool = True
) -> Neighbours:
    """The k nearest of each picture that FAISS finds, with the recall against the exact search.

    unit_ND: float32 of length 1. max_cosine: nearer ones are left out; more are asked for where they take the place
    of others, and a line says how many pictures have fewer than k even so (−1 in their rows).
    """
    found = measured_search(unit_ND, k, max_cosine=max_cosine, progress=progress)
    near = found.neighbours
    say(
        f"approximate search: {found.build_seconds:,.0f} s to build, {found.search_seconds:,.0f} s to search; finds "
        f"{100 * (near.recall or 0):.1f} % of the exact {k} nearest, "
        f"measured on {min(RECALL_SAMPLE, len(unit_ND)):,} pictures"
    )
    short_N = (near.rows_NK < 0).sum(1)
    if max_cosine is not None and short_N.any():
        say(
            f"approximate search: {(short_N > 0).sum():,} of {len(unit_ND):,} pictures have fewer than {k} neighbours "
            f"that are no nearer than {max_cosine:g} ({k - short_N.max()} at least); the exact search may find more"
        )
    return near


def measured_search(
    unit_ND: np.ndarray,
    k: int,
    *,
    max_cosine: float | None = None,
    progress: bool = True,
    seed: int = 0,
    queries: int | None = None,
) -> ApproximateSearch:
    """`approximate_neighbours` with its times, and no messages. ``seed``: which pictures the recall is measured on.

    ``queries``: seek the neighbours of so many pictures alone, drawn at random; the found are theirs, in their order.
    """
    n = len(unit_ND)
    drawn = np.random.default_rng(seed)
    row_M = np.arange(n) if queries is None else np.sort(drawn.choice(n, min(queries, n), replace=False))
    start = time.perf_counter()
    index = _index(unit_ND)
    built = time.perf_counter()
    M = len(row_M)
    rows_MK, cosine_MK = np.empty((M, k), np.int32), np.empty((M, k), np.float32)
    with Progress(M, "approximate neighbours", enabled=progress) as shown:
        for first in range(0, M, QUERY_BLOCK):
            part = slice(first, min(first + QUERY_BLOCK, M))
            rows_MK[part], cosine_MK[part] = _search(index, unit_ND, row_M[part], k, max_cosine)
            shown.advance(part.stop - first)
    searched = time.perf_counter()
    sample_Q = np.sort(drawn.choice(M, min(RECALL_SAMPLE, M), replace=False))
    recall = _recall(unit_ND, row_M[sample_Q], rows_MK[sample_Q], max_cosine)
    ended = time.perf_counter()
    return ApproximateSearch(Neighbours(rows_MK, cosine_MK, recall), built - start, searched - built, ended - searched)


def _index(unit_ND: np.ndarray) -> Any:
    """FAISS's index of all pictures. Those too few to place cells and codes by are compared one by one."""
    faiss = _faiss()
    n, d = unit_ND.shape
    cells = min(int(4 * n**0.5), min(n, FIT_SAMPLE) // PER_CELL)
    if cells < CODES or d % 2:
        index = faiss.IndexFlatIP(d)
    else:
        lists = faiss.IndexIVFPQFastScan(faiss.IndexFlatIP(d), d, cells, d // 2, 4, faiss.METRIC_INNER_PRODUCT)
        lists.nprobe = max(1, round(cells * PROBED_SHARE))
        index = faiss.IndexRefineFlat(lists)
        sample_F = np.random.default_rng(0).choice(n, min(FIT_SAMPLE, n), replace=False)
        index.train(unit_ND[np.sort(sample_F)])
    for start in range(0, n, ADD_BLOCK):
        index.add(unit_ND[start : start + ADD_BLOCK])
    return index


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError:
        raise MissingExtra("faiss", f"the search among {APPROXIMATE_FROM:,} pictures and more") from None


def _search(
    index: Any, unit_ND: np.ndarray, row_Q: np.ndarray, k: int, max_cosine: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of some pictures: rows and cosines Q×k, as `Neighbours` has them.

    Where near-duplicates leave fewer than k, twice as many are asked for in twice as many cells, and so on.
    """
    rows_QK, cosine_QK = np.full((len(row_Q), k), -1, np.int32), np.full((len(row_Q), k), -np.inf, np.float32)
    open_Q, times = np.arange(len(row_Q)), 1
    while len(open_Q) and times <= MAX_WIDENING:
        first = k + 1 if max_cosine is None else max(k + 1, MIN_REQUEST)
        asked = min(times * first, len(unit_ND))
        cosine_OA, found_OA = index.search(unit_ND[row_Q[open_Q]], asked, params=_widened_parameters(index, times))
        rows_QK[open_Q], cosine_QK[open_Q] = _filter_candidates(row_Q[open_Q], found_OA, cosine_OA, k, max_cosine)
        if max_cosine is None:
            break
        open_Q, times = open_Q[rows_QK[open_Q, -1] < 0], 2 * times
    return rows_QK, cosine_QK


def _widened_parameters(index: Any, times: int) -> Any:
    """FAISS's parameters to look through so many times as many cells."""
    faiss = _faiss()
    if isinstance(index, faiss.IndexFlat):
        return None  # it has no cells
    lists = faiss.downcast_index(index.base_index)
    probed = min(lists.nlist, times * lists.nprobe)
    return faiss.IndexRefineSearchParameters(
        k_factor=REFINE_FACTOR, base_index_params=faiss.SearchParametersIVF(nprobe=probed)
    )


def _filter_candidates(
    row_Q: np.ndarray, found_QA: np.ndarray, cosine_QA: np.ndarray, k: int, max_cosine: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The first k of what was found that are another picture and not too near, equal cosines by row."""
    left_out_QA = (found_QA == row_Q[:, None]) | (found_QA < 0)
    if max_cosine is not None:
        left_out_QA |= cosine_QA > max_cosine + ROUNDING / 2
    value_QA = np.where(left_out_QA, -np.inf, cosine_QA)
    order_QK = np.lexsort((found_QA, -value_QA), axis=1)[:, :k]
    value_QK, rows_QK = (np.take_along_axis(array, order_QK, 1) for array in (value_QA, found_QA))
    missing = ((0, 0), (0, k - value_QK.shape[1]))
    value_QK, rows_QK = np.pad(value_QK, missing, constant_values=-np.inf), np.pad(rows_QK, missing, constant_values=-1)
    return np.where(value_QK > -np.inf, rows_QK, -1), value_QK


def _recall(unit_ND: np.ndarray, row_Q: np.ndarray, rows_QK: np.ndarray, max_cosine: float | None) -> float:
    """The share of the exact neighbours of some pictures that were found."""
    vectors = Vectors.of(unit_ND)
    exclusions = Exclusions(row_Q, np.arange(len(unit_ND)), max_cosine)
    exact_QK = nearest_among(vectors.take(row_Q), vectors, rows_QK.shape[1], exclusions).rows_NK
    shared = sum(
        len(np.intersect1d(exact_K[exact_K >= 0], found_K)) for exact_K, found_K in zip(exact_QK, rows_QK, strict=True)
    )
    return shared / max(1, int((exact_QK >= 0).sum()))
