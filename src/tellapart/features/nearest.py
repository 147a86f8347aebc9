"""Exact nearest neighbours by cosine, with one rule for ties.

**Tie rule.** Neighbours are ordered by their cosine in float64, rounded to `DIGITS` digits; ties are broken by row. The
order therefore does not depend on block sizes or on the order of float32 sums.

`nearest_among` compares queries with a gallery. If the queries are the gallery, the cosine matrix is symmetric, so each
block is computed once and read twice, by rows and by columns, which halves the time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tellapart.errors import UsageError
from tellapart.utils.progress import Progress

COPY = 0.9999  # pictures with a higher cosine are copies, which no caption can distinguish
DIGITS = 9  # float64 cosines that agree to this many digits are ties
ROUNDING = 2e-6  # float32 cosines that differ by less may be ordered differently in float64
SPARE = 8  # number of candidates beyond the k-th, because float32 may order them differently from float64
BLOCK = 4096  # rows per side; a block of cosines takes 64 MB
_UNIT_TOLERANCE = 2e-7  # a norm this close to 1 is exactly 1 in float32
_CELLS = 1 << 24  # maximum number of float64 values in memory when near-ties are recomputed
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Neighbours:
    """The K nearest neighbours of each of N pictures, nearest first.

    ``rows_NK``: int32, padded with −1. ``cosine_NK``: float32, padded with −inf. ``recall``: the fraction of exact
    neighbours that an approximate search found, measured on a sample; None for an exact search.
    """

    rows_NK: npt.NDArray[np.int32]
    cosine_NK: Floats
    recall: float | None = None


def share_found(exact_QK: np.ndarray, found_QK: np.ndarray) -> float:
    """Computes the fraction of the exact neighbours that were found. Ignores the padding (−1)."""
    shared = sum(
        len(np.intersect1d(exact_K[exact_K >= 0], found_K)) for exact_K, found_K in zip(exact_QK, found_QK, strict=True)
    )
    return shared / max(1, int((exact_QK >= 0).sum()))


@dataclass(frozen=True)
class Vectors:
    """Features N×D, their norms, and the features scaled to norm 1."""

    given_ND: Floats
    length_N: npt.NDArray[np.float64]
    unit_ND: Floats

    @classmethod
    def of(cls, features_ND: npt.ArrayLike) -> Vectors:
        """Builds vectors from a matrix N×D. Raises `UsageError` for other shapes, and for rows of zeros, NaN or
        infinity.
        """
        given_ND = np.ascontiguousarray(features_ND, dtype=np.float32)
        if given_ND.ndim != 2:
            raise UsageError(f"features have shape {given_ND.shape}; expected a matrix with one row per picture")
        parts = (given_ND[at : at + BLOCK].astype(np.float64) for at in range(0, len(given_ND), BLOCK))
        length_N = np.concatenate([np.sqrt((part * part).sum(1)) for part in parts] or [np.zeros(0)])
        if len(bad_N := np.flatnonzero(~(np.isfinite(length_N) & (length_N > 0)))):
            raise UsageError(
                f"{len(bad_N):,} of {len(length_N):,} rows of features are zero, NaN or infinite (first: row "
                f"{bad_N[0]}); encode these pictures again (--precision fp32), or remove them"
            )
        if np.abs(length_N - 1).max(initial=0) < _UNIT_TOLERANCE:
            return cls(given_ND, length_N, given_ND)  # already has norm 1, so share the memory
        return cls(given_ND, length_N, given_ND / length_N.astype(np.float32)[:, None])

    def __len__(self) -> int:
        return len(self.given_ND)

    def take(self, row_Q: npt.NDArray[np.integer]) -> Vectors:
        """Selects rows by index."""
        unit_QD = self.unit_ND[row_Q]
        given_QD = unit_QD if self.given_ND is self.unit_ND else self.given_ND[row_Q]
        return Vectors(given_QD, self.length_N[row_Q], unit_QD)

    def cosines(
        self, a_M: npt.NDArray[np.integer], b_M: npt.NDArray[np.integer], others: Vectors | None = None
    ) -> npt.NDArray[np.float64]:
        """Computes the cosines of M pairs in float64, rounded to `DIGITS` digits.

        Each pair consists of a row in ``a_M`` and a row in ``b_M``, which indexes ``others`` (default: these vectors).
        """
        others = self if others is None else others
        step = max(1, _CELLS // max(1, self.given_ND.shape[1]))
        parts = []
        for at in range(0, len(a_M), step):
            a, b = a_M[at : at + step], b_M[at : at + step]
            dot_M = np.einsum("md,md->m", self.given_ND[a], others.given_ND[b], dtype=np.float64)
            parts.append(dot_M / (self.length_N[a] * others.length_N[b]))
        return np.round(np.concatenate(parts), DIGITS) if parts else np.zeros(0)


@dataclass(frozen=True)
class Exclusions:
    """Pairs that are never neighbours: pairs in the same group (such as a picture and its copies) and pairs whose
    cosine exceeds ``max_cosine``.

    group_Q, group_N: the group of each query and of each gallery picture.
    """

    group_Q: Ints | None = None
    group_N: Ints | None = None
    max_cosine: float | None = None

    @property
    def limit(self) -> float:
        """The largest float32 cosine that is allowed."""
        return np.inf if self.max_cosine is None else self.max_cosine + ROUNDING / 2

    def mask(self, cosine_QB: torch.Tensor, queries: slice, pictures: slice) -> None:
        """Sets the cosines of the excluded pairs in a block to −inf, in place."""
        if self.group_Q is not None and self.group_N is not None:
            group_Q, group_B = self.group_Q[queries], self.group_N[pictures]
            column_M = np.flatnonzero(np.isin(group_B, group_Q))  # at most a few columns, so compare only these
            query_P, at_P = np.nonzero(group_Q[:, None] == group_B[column_M])
            cosine_QB[torch.from_numpy(query_P), torch.from_numpy(column_M[at_P])] = -torch.inf
        if self.max_cosine is not None:
            cosine_QB.masked_fill_(cosine_QB > self.limit, -torch.inf)


def nearest_among(
    queries: Vectors,
    gallery: Vectors,
    k: int,
    exclusions: Exclusions | None = None,
    *,
    block: int = BLOCK,
    label: str | None = None,
) -> Neighbours:
    """Finds the k nearest rows of ``gallery`` for each query, ordered by this module's tie rule.

    Needs memory for one block of cosines (``block`` × ``block`` float32 values) and for k + 8 candidates per query.

    label: label of the progress bar; None: no progress bar.
    """
    exclusions = exclusions or Exclusions()
    n, k = len(gallery), max(0, min(k, len(gallery)))
    if k == 0 or not len(queries):
        shape = len(queries), k
        return Neighbours(np.zeros(shape, np.int32), np.zeros(shape, np.float32))
    best = _Best(len(queries), kept := min(k + SPARE, n))
    query_QD, unit_ND = torch.from_numpy(queries.unit_ND), torch.from_numpy(gallery.unit_ND)
    symmetric = queries is gallery and exclusions.group_Q is exclusions.group_N
    places = [(a, b) for a in range(0, len(queries), block) for b in range(a if symmetric else 0, n, block)]
    room = torch.empty(min(block, len(queries)) * min(block, n))  # one block of cosines, which is reused
    threads = min(2, torch.get_num_threads())
    with Progress(len(places), label or "", enabled=label is not None) as shown, ThreadPoolExecutor(threads) as pool:
        for a, b in places:
            part_A, part_B = query_QD[a : a + block], unit_ND[b : b + block]
            cosine_AB = room[: len(part_A) * len(part_B)].view(len(part_A), len(part_B))
            torch.mm(part_A, part_B.T, out=cosine_AB)
            exclusions.mask(cosine_AB, slice(a, a + block), slice(b, b + block))
            if symmetric and a != b:  # use the block in both directions
                ways = [pool.submit(way, a, b, cosine_AB.numpy()) for way in (best.by_rows, best.by_columns)]
                for done in ways:
                    done.result()
            else:
                best.by_rows(a, b, cosine_AB.numpy())
            shown.advance()
    return order_candidates(queries, gallery, best.rows_NK, best.cosine_NK, k, exclusions, complete=kept == n)


def order_candidates(
    queries: Vectors,
    gallery: Vectors,
    rows_QC: npt.NDArray[np.int32],
    cosine_QC: Floats,
    k: int,
    exclusions: Exclusions,
    *,
    complete: bool,
) -> Neighbours:
    """Returns the first k candidates of each query by the tie rule, from candidates ordered by float32 cosine.

    Recomputes a cosine only if float32 cannot distinguish it from the previous or next one.

    complete: whether the candidates are the whole gallery. If not, queries whose last candidate nearly ties with the
        k-th are compared with the whole gallery in float64.
    """
    rows_QK, cosine_QK = np.empty((len(rows_QC), k), np.int32), np.empty((len(rows_QC), k), np.float32)
    for start in range(0, len(rows_QC), BLOCK):
        part = slice(start, start + BLOCK)
        rows_BC, cosine_BC = rows_QC[part], cosine_QC[part]
        value_BC = np.round(cosine_BC.astype(np.float64), DIGITS)
        query_M, place_M = (_nearly_equal(cosine_BC) & (rows_BC >= 0)).nonzero()
        value_BC[query_M, place_M] = queries.cosines(query_M + start, rows_BC[query_M, place_M], gallery)
        order_BK = np.lexsort((rows_BC, -value_BC), axis=1)[:, :k]
        rows_QK[part] = np.take_along_axis(rows_BC, order_BK, 1)
        cosine_QK[part] = np.take_along_axis(value_BC, order_BK, 1)
    if not complete:
        last_Q, kth_Q = cosine_QC[:, -1], cosine_QC[:, k - 1]
        for query in np.flatnonzero((last_Q > -np.inf) & (last_Q >= kth_Q - ROUNDING)):
            rows_QK[query], cosine_QK[query] = _whole_gallery(queries, gallery, int(query), k, exclusions)
    return Neighbours(rows_QK, cosine_QK)


def _nearly_equal(cosine_QC: Floats) -> npt.NDArray[np.bool_]:
    """Returns a mask of the cosines (descending along each row) that are nearly equal to the previous or next one."""
    near_QC = np.zeros(cosine_QC.shape, bool)
    with np.errstate(invalid="ignore"):  # −inf minus −inf
        gap_QC = cosine_QC[:, :-1] - cosine_QC[:, 1:] <= ROUNDING
    near_QC[:, :-1] |= gap_QC
    near_QC[:, 1:] |= gap_QC
    return near_QC


def _whole_gallery(
    queries: Vectors, gallery: Vectors, query: int, k: int, exclusions: Exclusions
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Returns the rows and cosines of one query's first k neighbours, computed in float64."""
    row_N = np.arange(len(gallery))
    cosine_N = queries.cosines(np.full(len(gallery), query), row_N, gallery)
    exclusions.mask(torch.from_numpy(cosine_N)[None], slice(query, query + 1), slice(None))  # in place
    first_K = np.lexsort((row_N, -cosine_N))[:k]
    return np.where(cosine_N[first_K] > -np.inf, first_K, -1).astype(np.int32), cosine_N[first_K]


class _Best:
    """Keeps the k best candidates of each row.

    After a row's first block, merges only the few cosines that exceed the row's k-th best.
    """

    def __init__(self, n: int, k: int) -> None:
        self.k, self._begun = k, set[int]()
        self.rows_NK = np.full((n, k), -1, np.int32)
        self.cosine_NK = np.full((n, k), -np.inf, np.float32)

    def by_rows(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """Adds the pictures starting at ``b`` as candidates for those starting at ``a``, given their cosines."""
        part = slice(a, a + len(cosine_AB))
        if a not in self._begun:
            self._fill(a, b, cosine_AB)
            return
        place_M = np.flatnonzero(cosine_AB > self.cosine_NK[part, -1:])
        at_M, of_M = np.divmod(place_M, cosine_AB.shape[1])
        self._merge(part, at_M, of_M + b, cosine_AB.ravel()[place_M])

    def by_columns(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """Adds the same block as candidates for its columns. Transposes only the selected values, not the block."""
        part = slice(b, b + cosine_AB.shape[1])
        if b not in self._begun:
            self._fill(b, a, torch.from_numpy(cosine_AB).T.contiguous().numpy())  # three times as fast as numpy
            return
        place_M = np.flatnonzero(cosine_AB > self.cosine_NK[part, -1])
        of_M, at_M = np.divmod(place_M, cosine_AB.shape[1])
        order_M = np.argsort(at_M, kind="stable")
        self._merge(part, at_M[order_M], of_M[order_M] + a, cosine_AB.ravel()[place_M[order_M]])

    def _fill(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """Initializes the rows starting at ``a`` from their first block of candidates."""
        self._begun.add(a)
        cosine_AK, place_AK = torch.from_numpy(cosine_AB).topk(min(self.k, cosine_AB.shape[1]), 1)
        part = (slice(a, a + len(cosine_AB)), slice(0, cosine_AK.shape[1]))
        self.cosine_NK[part] = cosine_AK.numpy()
        self.rows_NK[part] = np.where(self.cosine_NK[part] > -np.inf, place_AK.numpy() + b, -1)

    def _merge(self, part: slice, at_M: np.ndarray, row_M: np.ndarray, cosine_M: np.ndarray) -> None:
        """Merges candidates, which are ordered by row, into the rows in ``part``.

        Before the merge, a row's m-th new candidate is put at column k + m.
        """
        if not len(at_M):
            return
        count_A = np.bincount(at_M, minlength=part.stop - part.start)
        slot_M = np.arange(len(at_M)) - np.repeat(np.cumsum(count_A) - count_A, count_A)
        width = self.k + int(count_A.max())
        cosine_AC = np.full((len(count_A), width), -np.inf, np.float32)
        rows_AC = np.full((len(count_A), width), -1, np.int32)
        cosine_AC[:, : self.k], rows_AC[:, : self.k] = self.cosine_NK[part], self.rows_NK[part]
        cosine_AC[at_M, self.k + slot_M], rows_AC[at_M, self.k + slot_M] = cosine_M, row_M
        cosine_AK, place_AK = torch.from_numpy(cosine_AC).topk(self.k, 1)
        self.cosine_NK[part] = cosine_AK.numpy()
        self.rows_NK[part] = np.take_along_axis(rows_AC, place_AK.numpy(), 1)
