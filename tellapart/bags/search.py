"""The nearest neighbours of every picture: exact, in blocks, with bounded memory; or approximate, by FAISS.

The matrix of cosines is symmetric, so each block of it is computed once and read twice, by rows and by columns: half
the work of a search that takes pictures as queries one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import MissingExtra, UsageError
from tellapart.messages import say

if TYPE_CHECKING:
    import torch

BLOCK = 4096  # pictures a side: a block of cosines is 64 MB
APPROXIMATE_FROM = 1_000_000  # pictures: from here on FAISS, unless told otherwise
DIGITS = 9  # cosines equal to so many digits (in float64) are ties, and the picture that stands first goes first
ROUNDING = 2e-6  # cosines in float32 this near may stand in another order than in float64
UNIT = 2e-7  # a length this near 1 is 1 to float32
SPARE = 8  # neighbours kept beyond the last that is wanted, in case float32 has them in another order
SAMPLE = 1000  # pictures on which the recall of the approximate search is measured
CELLS = 1 << 24  # numbers in float64 held at a time where near-ties are computed once more
FIT = 64 * 1024  # pictures that FAISS finds its cells from
PROBED = 1 / 16  # share of the cells that FAISS looks through


@dataclass(frozen=True)
class Neighbours:
    """The K nearest of each of N pictures, nearest first.

    ``rows_NK`` int32, −1 where there are fewer than K; ``cosine_NK`` float32, −inf there. ``recall`` is the share of
    the exact neighbours that an approximate search found, on a sample; None for an exact search.
    """

    rows_NK: np.ndarray
    cosine_NK: np.ndarray
    recall: float | None = None


def nearest_neighbours(
    features_ND: np.ndarray | Vectors,
    k: int,
    *,
    max_cosine: float | None = None,
    block: int = BLOCK,
    approximate: bool | None = None,
    progress: bool = True,
) -> Neighbours:
    """The k nearest pictures of each by the cosine of their features, itself left out.

    features_ND: any length of rows. max_cosine: nearer ones than this are left out (paper 3: 0.8 and above are
    near-duplicates). Order: by the cosine in float64, equal ones (to the ninth digit) by row, whatever ``block`` is.
    approximate: None is by FAISS (extra ``faiss``) from a million pictures on; its recall against the exact
    search is measured on a sample and told. Raises `UsageError` for features that are not finite.
    """
    vectors = features_ND if isinstance(features_ND, Vectors) else Vectors.of(features_ND)
    n = len(vectors)
    k = max(0, min(k, n - 1))
    if approximate if approximate is not None else n >= APPROXIMATE_FROM:
        return _by_faiss(vectors.unit_ND, k, max_cosine, block)
    if k == 0:
        return Neighbours(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32))
    rows_NK, cosine_NK = _exact(vectors.unit_ND, min(k + SPARE, n - 1), max_cosine, block, progress)
    return Neighbours(*_settled(vectors, rows_NK, cosine_NK, k, max_cosine))


@dataclass(frozen=True)
class Vectors:
    """Features as they were given, their lengths, and scaled to length 1 (a row of zeros stays one)."""

    given_ND: np.ndarray
    length_N: np.ndarray
    unit_ND: np.ndarray

    @classmethod
    def of(cls, features_ND: np.ndarray) -> Vectors:
        """Raises `UsageError` that names a row which is not finite."""
        features_ND = np.ascontiguousarray(features_ND, dtype=np.float32)
        if features_ND.ndim != 2:
            raise UsageError(f"features of shape {features_ND.shape}; expected a matrix, one row for each picture")
        parts = (features_ND[at : at + 4096].astype(np.float64) for at in range(0, len(features_ND), 4096))
        length_N = np.concatenate([np.sqrt((part * part).sum(1)) for part in parts] or [np.zeros(0)])
        if not np.isfinite(length_N).all():
            wrong = np.flatnonzero(~np.isfinite(length_N))
            raise UsageError(
                f"{len(wrong)} of {len(length_N)} rows of features hold NaN or infinity, such as row {wrong[0]}; "
                "encode the pictures again, or leave those out"
            )
        length_N = np.maximum(length_N, 1e-12)
        if np.abs(length_N - 1).max(initial=0) < UNIT:
            return cls(features_ND, length_N, features_ND)  # no second copy of what is of length 1 already
        return cls(features_ND, length_N, features_ND / length_N.astype(np.float32)[:, None])

    def __len__(self) -> int:
        return len(self.given_ND)

    def cosines(self, a_M: np.ndarray, b_M: np.ndarray) -> np.ndarray:
        """Cosines of pairs of rows, in float64 to `DIGITS` digits: what order and ties are decided by."""
        step = max(1, CELLS // self.given_ND.shape[1])
        parts = []
        for at in range(0, len(a_M), step):
            a, b = a_M[at : at + step], b_M[at : at + step]
            dot_M = np.einsum("md,md->m", self.given_ND[a], self.given_ND[b], dtype=np.float64)
            parts.append(dot_M / (self.length_N[a] * self.length_N[b]))
        return np.round(np.concatenate(parts), DIGITS) if parts else np.zeros(0)


def _exact(
    unit_ND: np.ndarray, k: int, max_cosine: float | None, block: int, progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest cosines of each row, in no safe order where they are nearly equal."""
    import torch

    from tellapart.progress import Progress

    unit_T = torch.from_numpy(unit_ND)
    starts = range(0, len(unit_ND), block)
    best = _Best(len(unit_ND), k)
    label = f"nearest neighbours ({block:,} pictures a block)"
    with Progress(len(starts) * (len(starts) + 1) // 2, label, enabled=progress) as shown:
        for a in starts:
            for b in starts[a // block :]:
                cosine_AB = unit_T[a : a + block] @ unit_T[b : b + block].T
                if a == b:
                    cosine_AB.fill_diagonal_(-torch.inf)
                if max_cosine is not None:
                    cosine_AB.masked_fill_(cosine_AB > max_cosine + ROUNDING / 2, -torch.inf)
                best.take(a, b, cosine_AB)
                if a != b:
                    best.take(b, a, cosine_AB.T)
                shown.advance()
    return best.rows_NK.numpy(), best.cosine_NK.numpy()


class _Best:
    """The k best of each row so far. After a row's first block few cosines are above its k-th best: only those move."""

    def __init__(self, n: int, k: int) -> None:
        import torch

        self.k, self._begun = k, set[int]()
        self.rows_NK = torch.full((n, k), -1, dtype=torch.int32)
        self.cosine_NK = torch.full((n, k), -torch.inf)

    def take(self, row: int, column: int, cosine_AB: torch.Tensor) -> None:
        """Cosines of the rows from ``row`` on with the pictures from ``column`` on."""
        import torch

        part = slice(row, row + len(cosine_AB))
        if row not in self._begun:
            self._begun.add(row)
            first = cosine_AB.topk(min(self.k, cosine_AB.shape[1]), 1)
            self.cosine_NK[part, : first.values.shape[1]] = first.values
            self.rows_NK[part, : first.values.shape[1]] = torch.where(
                first.values > -torch.inf, first.indices + column, -1
            ).int()
            return
        place_M2 = (cosine_AB > self.cosine_NK[part, -1:]).nonzero()
        if not len(place_M2):
            return
        at_M, of_M = place_M2.unbind(1)
        count_A = torch.bincount(at_M, minlength=len(cosine_AB))
        # The m-th find of a row goes to its m-th place behind the k that it has.
        first_A = count_A.cumsum(0) - count_A
        slot_M = torch.arange(len(at_M)) - first_A[at_M]
        shape = (len(cosine_AB), int(count_A.max()))
        found_AC, found_rows_AC = torch.full(shape, -torch.inf), torch.full(shape, -1, dtype=torch.int32)
        found_AC[at_M, slot_M] = cosine_AB[at_M, of_M]
        found_rows_AC[at_M, slot_M] = (of_M + column).int()
        all_AC = torch.cat([self.cosine_NK[part], found_AC], 1)
        top = all_AC.topk(self.k, 1)
        self.cosine_NK[part] = top.values
        self.rows_NK[part] = torch.cat([self.rows_NK[part], found_rows_AC], 1).gather(1, top.indices)


def _settled(
    vectors: Vectors,
    rows_QK: np.ndarray,
    cosine_QK: np.ndarray,
    k: int,
    max_cosine: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The first k of each query's candidates, in the order that float64 gives, ties by row.

    Only cosines that float32 cannot tell from the next one are computed once more.
    """
    near_QK = np.zeros(cosine_QK.shape, bool)
    with np.errstate(invalid="ignore"):
        gap_QK = cosine_QK[:, :-1] - cosine_QK[:, 1:] <= ROUNDING
    near_QK[:, :-1] |= gap_QK
    near_QK[:, 1:] |= gap_QK
    near_QK &= rows_QK >= 0
    value_QK = np.round(cosine_QK.astype(np.float64), DIGITS)
    query_M, place_M = near_QK.nonzero()
    value_QK[query_M, place_M] = vectors.cosines(query_M, rows_QK[query_M, place_M])
    order_QK = np.lexsort((rows_QK, -value_QK), axis=1)[:, :k]
    rows, cosine = (np.take_along_axis(array, order_QK, 1) for array in (rows_QK, value_QK))
    if rows_QK.shape[1] < len(vectors) - 1:  # what was cut off may belong before the cut: nearly equal, many times
        last_Q, kth_Q = cosine_QK[:, -1], cosine_QK[:, k - 1]
        for query in np.flatnonzero((kth_Q - last_Q <= ROUNDING) & (last_Q > -np.inf)):
            rows[query], cosine[query] = _one_row(vectors, int(query), k, max_cosine)
    return rows.astype(np.int32), cosine.astype(np.float32)


def _one_row(vectors: Vectors, row: int, k: int, max_cosine: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The first k neighbours of one picture, all in float64."""
    n = len(vectors)
    cosine_N = vectors.cosines(np.full(n, row), np.arange(n))
    if max_cosine is not None:
        cosine_N[cosine_N > max_cosine + ROUNDING / 2] = -np.inf
    cosine_N[row] = -np.inf
    first_K = np.lexsort((np.arange(n), -cosine_N))[:k]
    return np.where(cosine_N[first_K] > -np.inf, first_K, -1), cosine_N[first_K]


# Beyond a million pictures
def _by_faiss(unit_ND: np.ndarray, k: int, max_cosine: float | None, block: int) -> Neighbours:
    """Inverted lists: each picture is compared with those of a sixteenth of the cells, the nearest cells."""
    faiss = _faiss()
    if max_cosine is not None:
        raise UsageError("max_cosine is of the exact search only; leave it out, or search exactly (--exact)")
    cells = max(1, int(4 * len(unit_ND) ** 0.5))
    rng = np.random.default_rng(0)
    sample_F = rng.choice(len(unit_ND), min(FIT, len(unit_ND)), replace=False)
    cells = min(cells, max(1, len(sample_F) // 39))  # FAISS wants at least 39 pictures to place a cell
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(unit_ND.shape[1]), unit_ND.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    index.train(unit_ND[np.sort(sample_F)])
    index.nprobe = max(1, round(cells * PROBED))
    rows_NK = np.full((len(unit_ND), k), -1, np.int32)
    cosine_NK = np.full((len(unit_ND), k), -np.inf, np.float32)
    for start in range(0, len(unit_ND), block):
        index.add(unit_ND[start : start + block])
    for start in range(0, len(unit_ND), block):
        part = np.arange(start, min(start + block, len(unit_ND)))
        cosine_QK, found_QK = index.search(unit_ND[part], k + 1)
        rows_NK[part], cosine_NK[part] = _without_self(part, found_QK, cosine_QK, k)
    recall = _recall(unit_ND, rows_NK, rng)
    say(f"approximate search: {cells:,} cells, {index.nprobe} looked through; finds {100 * recall:.1f} % of the exact "
        f"{k} nearest (measured on {min(SAMPLE, len(unit_ND)):,} pictures)")  # fmt: skip
    return Neighbours(rows_NK, cosine_NK, recall)


def _without_self(
    row_Q: np.ndarray, found_QK: np.ndarray, cosine_QK: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first k that are another picture, equal cosines by row."""
    value_QK = np.where((found_QK == row_Q[:, None]) | (found_QK < 0), -np.inf, cosine_QK)
    order_QK = np.lexsort((found_QK, -value_QK), axis=1)[:, :k]
    value, rows = (np.take_along_axis(array, order_QK, 1) for array in (value_QK, found_QK))
    return np.where(value > -np.inf, rows, -1), value


def _recall(unit_ND: np.ndarray, rows_NK: np.ndarray, rng: np.random.Generator) -> float:
    """The share of the exact neighbours of some pictures that were found."""
    import torch

    sample_Q = np.sort(rng.choice(len(unit_ND), min(SAMPLE, len(unit_ND)), replace=False))
    unit_T, k = torch.from_numpy(unit_ND), rows_NK.shape[1]
    shared = 0
    for row in sample_Q:
        cosine_N = unit_T @ unit_T[row]
        cosine_N[row] = -torch.inf
        exact_K = cosine_N.topk(k).indices.numpy()
        shared += len(np.intersect1d(exact_K, rows_NK[row]))
    return shared / (len(sample_Q) * k) if k else 1.0


def _faiss() -> Any:
    try:
        import faiss
    except ModuleNotFoundError:
        raise MissingExtra("faiss", f"the search among {APPROXIMATE_FROM:,} pictures and more") from None
    return faiss
