"""Exact nearest neighbours by cosine, and the one rule for ties.

**Tie rule.** Neighbours are ordered by their cosine in float64, rounded to `DIGITS` digits; equal cosines by row. The
order does not depend on block sizes or on how float32 sums are grouped.

`nearest_among` compares queries with a gallery. `tellapart.bags.search.nearest_neighbours` compares all pictures with
each other, in half the time, under the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tellapart.errors import UsageError
from tellapart.progress import Progress

if TYPE_CHECKING:
    import torch

COPY = 0.9999  # a cosine above this is a copy of the picture, which no caption can distinguish from it
DIGITS = 9  # cosines equal to this many digits, in float64, are ties
ROUNDING = 2e-6  # cosines in float32 that are this close may be ordered differently in float64
SPARE = 8  # candidates kept beyond the k-th, in case float32 orders them differently
BLOCK = 4096  # rows a side: a block of cosines is 64 MB
_UNIT_TOLERANCE = 2e-7  # a length this close to 1 is 1 in float32
_CELLS = 1 << 24  # float64 numbers held at a time where near-ties are computed again

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Neighbours:
    """The K nearest of each of N pictures, nearest first.

    ``rows_NK`` int32, −1 where there are fewer than K; ``cosine_NK`` float32, −inf there. ``recall`` is the share of
    the exact neighbours that an approximate search found, on a sample; None for an exact search.
    """

    rows_NK: npt.NDArray[np.int32]
    cosine_NK: Floats
    recall: float | None = None


@dataclass(frozen=True)
class Vectors:
    """Features as given, their lengths, and scaled to length 1 (a row of zeros stays zero)."""

    given_ND: Floats
    length_N: npt.NDArray[np.float64]
    unit_ND: Floats

    @classmethod
    def of(cls, features_ND: npt.ArrayLike) -> Vectors:
        """Raises `UsageError` for what is not a matrix, and for a row that is not finite."""
        given_ND = np.ascontiguousarray(features_ND, dtype=np.float32)
        if given_ND.ndim != 2:
            raise UsageError(f"features of shape {given_ND.shape}; expected a matrix, one row for each picture")
        parts = (given_ND[at : at + BLOCK].astype(np.float64) for at in range(0, len(given_ND), BLOCK))
        length_N = np.concatenate([np.sqrt((part * part).sum(1)) for part in parts] or [np.zeros(0)])
        if not np.isfinite(length_N).all():
            bad_N = np.flatnonzero(~np.isfinite(length_N))
            raise UsageError(
                f"{len(bad_N)} of {len(length_N)} rows of features hold NaN or infinity, such as row {bad_N[0]}; "
                "encode the pictures again, or leave those out"
            )
        length_N = np.maximum(length_N, 1e-12)
        if np.abs(length_N - 1).max(initial=0) < _UNIT_TOLERANCE:
            return cls(given_ND, length_N, given_ND)  # already of length 1: no second copy
        return cls(given_ND, length_N, given_ND / length_N.astype(np.float32)[:, None])

    def __len__(self) -> int:
        return len(self.given_ND)

    def take(self, row_Q: npt.NDArray[np.integer]) -> Vectors:
        """Some of the rows, in this order."""
        unit_QD = self.unit_ND[row_Q]
        given_QD = unit_QD if self.given_ND is self.unit_ND else self.given_ND[row_Q]
        return Vectors(given_QD, self.length_N[row_Q], unit_QD)

    def cosines(
        self, a_M: npt.NDArray[np.integer], b_M: npt.NDArray[np.integer], others: Vectors | None = None
    ) -> npt.NDArray[np.float64]:
        """Cosines of pairs: rows ``a_M`` with rows ``b_M`` (of ``others``). float64, rounded to `DIGITS` digits."""
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
    """Pairs that are never neighbours: those of one group (itself, its copies), and those nearer than ``max_cosine``.

    group_Q, group_N: a number for each query and each picture of the gallery.
    """

    group_Q: Ints | None = None
    group_N: Ints | None = None
    max_cosine: float | None = None

    @property
    def limit(self) -> float:
        """The largest cosine in float32 that is not excluded."""
        return np.inf if self.max_cosine is None else self.max_cosine + ROUNDING / 2

    def mask(self, cosine_QB: torch.Tensor, queries: slice, pictures: slice) -> None:
        """Set the excluded pairs of a block of cosines to −inf, in place."""
        import torch

        if self.group_Q is not None and self.group_N is not None:
            same_QB = self.group_Q[queries, None] == self.group_N[None, pictures]
            cosine_QB.masked_fill_(torch.from_numpy(same_QB), -torch.inf)
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
    """The k nearest rows of ``gallery`` for each query, by the tie rule of this module.

    label: of a progress bar; None shows none.
    Memory: one block of cosines, ``block`` × ``block`` float32, and k + 8 candidates of each query.
    """
    import torch

    exclusions = exclusions or Exclusions()
    n = len(gallery)
    k = min(k, n)
    if k <= 0:
        return Neighbours(np.zeros((len(queries), 0), np.int32), np.zeros((len(queries), 0), np.float32))
    kept = min(k + SPARE, n)
    rows_QK, cosine_QK = np.empty((len(queries), kept), np.int32), np.empty((len(queries), kept), np.float32)
    unit_ND = torch.from_numpy(gallery.unit_ND)
    starts = range(0, len(queries), block)
    with Progress(len(queries), label or "", enabled=label is not None) as progress:
        for part in (slice(start, start + block) for start in starts):
            unit_QD = torch.from_numpy(queries.unit_ND[part])
            best = torch.full((len(unit_QD), kept), -torch.inf)
            rows = torch.full((len(unit_QD), kept), -1)
            for at in range(0, n, block):
                cosine_QB = unit_QD @ unit_ND[at : at + block].T
                exclusions.mask(cosine_QB, part, slice(at, at + block))
                number_QB = torch.arange(at, at + cosine_QB.shape[1]).expand(len(cosine_QB), -1)
                best, place = torch.cat([best, cosine_QB], 1).topk(kept, 1)
                rows = torch.cat([rows, number_QB], 1).gather(1, place)
            cosine_QK[part] = best.numpy()
            rows_QK[part] = torch.where(best > -torch.inf, rows, -1).numpy()
            progress.advance(len(unit_QD))
    return order_candidates(queries, gallery, rows_QK, cosine_QK, k, exclusions, complete=kept == n)


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
    """The first k of each query's candidates (nearest first by float32), ordered by the tie rule.

    Only cosines that float32 cannot tell from the next one are computed again. complete: no candidate was cut off.
    Otherwise a query whose last candidate is nearly as near as its k-th is compared with the whole gallery in float64.
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
    """Which of these cosines (descending along a row) are nearly equal to the one before or after."""
    near_QC = np.zeros(cosine_QC.shape, bool)
    with np.errstate(invalid="ignore"):  # −inf minus −inf
        gap_QC = cosine_QC[:, :-1] - cosine_QC[:, 1:] <= ROUNDING
    near_QC[:, :-1] |= gap_QC
    near_QC[:, 1:] |= gap_QC
    return near_QC


def _whole_gallery(
    queries: Vectors, gallery: Vectors, query: int, k: int, exclusions: Exclusions
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Rows and cosines of the first k neighbours of one query, all in float64."""
    row_N = np.arange(len(gallery))
    cosine_N = queries.cosines(np.full(len(gallery), query), row_N, gallery)
    cosine_N[cosine_N > exclusions.limit] = -np.inf
    if exclusions.group_Q is not None and exclusions.group_N is not None:
        cosine_N[exclusions.group_N == exclusions.group_Q[query]] = -np.inf
    first_K = np.lexsort((row_N, -cosine_N))[:k]
    return np.where(cosine_N[first_K] > -np.inf, first_K, -1).astype(np.int32), cosine_N[first_K]
