"""Approximate nearest neighbours with FAISS (extra ``faiss``), which finds most neighbours but not all.

FAISS assigns pictures to cells and compares each picture with those in the nearest sixteenth of the cells: first by
codes, which use four bits per two numbers, and then, for the best candidates only, by their features. The recall of
this search is measured.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra
from tellapart.features.nearest import ROUNDING, Exclusions, Neighbours, Vectors, nearest_among, share_found
from tellapart.utils.blocks import blocks_of
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

APPROXIMATE_FROM = 1_000_000  # minimum number of pictures for which FAISS is the default
NEED = f"the search among {APPROXIMATE_FROM:,} pictures and more"  # in the message if FAISS is not installed
RECALL_SAMPLE = 2000  # number of pictures whose exact neighbours are computed to measure recall
FIT_SAMPLE = 64 * 1024  # number of pictures on which cells and codes are trained
PER_CELL = 39  # minimum number of pictures per cell in FAISS
CODES = 16  # number of values that a four-bit code can take
PROBED_SHARE = 1 / 16  # fraction of cells that are searched
REFINE_FACTOR = 16  # the best candidates by code, this many times k, are compared by their features
QUERY_BLOCK = 4096  # queries per block
ADD_BLOCK = 16384  # pictures added to the index at a time
MIN_REQUEST = 16  # minimum size of the first request for candidates if near-duplicates are excluded, in case k is small
MAX_WIDENING = 16  # maximum factor by which pictures and cells grow when the nearest pictures are near-duplicates


def approximate_neighbours(
    unit_ND: np.ndarray, k: int, *, max_cosine: float | None = None, progress: bool = True
) -> Neighbours:
    """Finds the k nearest neighbours of each picture with FAISS, and measures the recall against the exact search.

    unit_ND: float32 rows of norm 1.
    max_cosine: exclude pictures with a higher cosine, and request more candidates to replace them. Prints how many
        pictures still have fewer than k neighbours (their rows are padded with −1).
    """
    near, build_seconds, search_seconds = measured_search(unit_ND, k, max_cosine=max_cosine, progress=progress)
    say(
        f"approximate search: {build_seconds:,.0f} s to build, {search_seconds:,.0f} s to search; finds "
        f"{100 * (near.recall or 0):.1f}% of the exact {k} nearest, "
        f"measured on {min(RECALL_SAMPLE, len(unit_ND)):,} pictures"
    )
    short_N = (near.rows_NK < 0).sum(1)
    if max_cosine is not None and short_N.any():
        say(
            f"approximate search: {(short_N > 0).sum():,} of {len(unit_ND):,} pictures have fewer than {k} "
            f"neighbours with a cosine of at most {max_cosine:g} (at least {k - short_N.max()}); the exact search "
            "may find more"
        )
    return near


def measured_search(
    unit_ND: np.ndarray,
    k: int,
    *,
    max_cosine: float | None = None,
    progress: bool = True,
    queries: int | None = None,
) -> tuple[Neighbours, float, float]:
    """Runs the search of `approximate_neighbours` without its messages, and measures its recall.

    Returns the neighbours, and the seconds it took to build and to search the index.

    queries: number of random pictures to search for (default: all); the results are in the order of the data.
    """
    n, drawn = len(unit_ND), np.random.default_rng(0)
    row_M = np.arange(n) if queries is None else np.sort(drawn.choice(n, min(queries, n), replace=False))
    start = time.perf_counter()
    index = _index(unit_ND)
    built = time.perf_counter()
    parts = []
    with Progress(len(row_M), "approximate neighbours", enabled=progress) as shown:
        for row_Q in blocks_of(row_M, QUERY_BLOCK):
            parts.append(_search(index, unit_ND, row_Q, k, max_cosine))
            shown.advance(len(row_Q))
    rows_MK, cosine_MK = (np.concatenate(each) for each in zip(*parts, strict=True))
    searched = time.perf_counter()
    sample_Q = np.sort(drawn.choice(len(row_M), min(RECALL_SAMPLE, len(row_M)), replace=False))
    vectors, row_Q = Vectors.of(unit_ND), row_M[sample_Q]
    exact = nearest_among(vectors.take(row_Q), vectors, k, Exclusions(row_Q, np.arange(n), max_cosine))
    recall = share_found(exact.rows_NK, rows_MK[sample_Q])
    return Neighbours(rows_MK, cosine_MK, recall), built - start, searched - built


def _index(unit_ND: np.ndarray) -> Any:
    """Builds a FAISS index of all pictures. If there are too few for cells and codes, the index compares all pairs."""
    faiss = load_faiss(NEED)
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
    for part_BD in blocks_of(unit_ND, ADD_BLOCK):
        index.add(part_BD)
    return index


def load_faiss(what: str) -> Any:
    """Imports FAISS. Raises `MissingExtra` if it is not installed.

    ``what``: the feature that needs FAISS, for the error message.
    """
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError:
        raise MissingExtra("faiss", what) from None


def _search(
    index: Any, unit_ND: np.ndarray, row_Q: np.ndarray, k: int, max_cosine: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows and cosines, Q×k, of the queries' nearest neighbours, in the format of `Neighbours`.

    While a query has fewer than k neighbours left after near-duplicates are excluded, doubles the number of candidates
    and of cells searched.
    """
    faiss = load_faiss(NEED)
    rows_QK, cosine_QK = np.full((len(row_Q), k), -1, np.int32), np.full((len(row_Q), k), -np.inf, np.float32)
    open_Q, times = np.arange(len(row_Q)), 1
    while len(open_Q) and times <= MAX_WIDENING:
        first = k + 1 if max_cosine is None else max(k + 1, MIN_REQUEST)
        widened = None  # an index without cells compares all pairs
        if not isinstance(index, faiss.IndexFlat):
            lists = faiss.downcast_index(index.base_index)
            cells = faiss.SearchParametersIVF(nprobe=min(lists.nlist, times * lists.nprobe))
            widened = faiss.IndexRefineSearchParameters(k_factor=REFINE_FACTOR, base_index_params=cells)
        asked = min(times * first, len(unit_ND))
        cosine_OA, found_OA = index.search(unit_ND[row_Q[open_Q]], asked, params=widened)
        rows_QK[open_Q], cosine_QK[open_Q] = _filter_candidates(row_Q[open_Q], found_OA, cosine_OA, k, max_cosine)
        if max_cosine is None:
            break
        open_Q, times = open_Q[rows_QK[open_Q, -1] < 0], 2 * times
    return rows_QK, cosine_QK


def _filter_candidates(
    row_Q: np.ndarray, found_QA: np.ndarray, cosine_QA: np.ndarray, k: int, max_cosine: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns each query's first k results. Excludes the query itself and results above ``max_cosine``.

    Ties are ordered by row.
    """
    left_out_QA = (found_QA == row_Q[:, None]) | (found_QA < 0)
    if max_cosine is not None:
        left_out_QA |= cosine_QA > max_cosine + ROUNDING / 2
    value_QA = np.where(left_out_QA, -np.inf, cosine_QA)
    order_QK = np.lexsort((found_QA, -value_QA), axis=1)[:, :k]
    value_QK, rows_QK = (np.take_along_axis(array, order_QK, 1) for array in (value_QA, found_QA))
    missing = ((0, 0), (0, k - value_QK.shape[1]))
    value_QK, rows_QK = np.pad(value_QK, missing, constant_values=-np.inf), np.pad(rows_QK, missing, constant_values=-1)
    return np.where(value_QK > -np.inf, rows_QK, -1), value_QK
