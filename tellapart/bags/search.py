"""The nearest neighbours of every picture: exact, in blocks, with bounded memory; `bags.approximate` for a million.

The matrix of cosines is symmetric, so each block of it is computed once and read twice, by rows and by columns: half
the work of a search that takes pictures as queries one after the other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tellapart.bags.approximate import approximate_neighbours
from tellapart.bags.neighbours import APPROXIMATE_FROM, ROUNDING, Neighbours
from tellapart.errors import UsageError

BLOCK = 4096  # pictures a side: a block of cosines is 64 MB
DIGITS = 9  # cosines equal to so many digits (in float64) are ties, and the picture that stands first goes first
UNIT = 2e-7  # a length this near 1 is 1 to float32
SPARE = 8  # neighbours kept beyond the last that is wanted, in case float32 has them in another order
CELLS = 1 << 24  # numbers in float64 held at a time where near-ties are computed once more


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
    if k == 0:
        return Neighbours(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32))
    if approximate if approximate is not None else n >= APPROXIMATE_FROM:
        return approximate_neighbours(vectors.unit_ND, k, max_cosine=max_cosine, progress=progress)
    best = _exact(vectors.unit_ND, min(k + SPARE, n - 1), max_cosine, block, progress)
    return _settled(vectors, best, k, max_cosine)


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


def _exact(unit_ND: np.ndarray, k: int, max_cosine: float | None, block: int, progress: bool) -> _Best:
    """The k largest cosines of each row, largest first, in no safe order where they are nearly equal."""
    import torch

    from tellapart.progress import Progress

    unit_T = torch.from_numpy(unit_ND)
    starts = range(0, len(unit_ND), block)
    best = _Best(len(unit_ND), k)
    room = torch.empty(min(block, len(unit_ND)) ** 2)  # one block of cosines, used again and again
    label = f"nearest neighbours ({block:,} pictures a block)"
    steps = len(starts) * (len(starts) + 1) // 2
    with Progress(steps, label, enabled=progress) as shown, ThreadPoolExecutor(workers()) as pool:
        for a in starts:
            for b in starts[a // block :]:
                part_A, part_B = unit_T[a : a + block], unit_T[b : b + block]
                cosine_AB = room[: len(part_A) * len(part_B)].view(len(part_A), len(part_B))
                torch.mm(part_A, part_B.T, out=cosine_AB)
                if a == b:
                    cosine_AB.fill_diagonal_(-torch.inf)
                if max_cosine is not None:
                    cosine_AB.masked_fill_(cosine_AB > max_cosine + ROUNDING / 2, -torch.inf)
                ways = (best.by_rows, best.by_columns)[: 1 if a == b else 2]
                for done in [pool.submit(way, a, b, cosine_AB.numpy()) for way in ways]:
                    done.result()
                shown.advance()
    return best


def workers() -> int:
    """Threads that read a block: by rows and by columns at once, where torch may use more than one core."""
    import torch

    return min(2, torch.get_num_threads())


class _Best:
    """The k best of each row so far. After a row's first block few cosines are above its k-th best: only those move."""

    def __init__(self, n: int, k: int) -> None:
        self.k, self._begun = k, set[int]()
        self.rows_NK = np.full((n, k), -1, np.int32)
        self.cosine_NK = np.full((n, k), -np.inf, np.float32)

    def by_rows(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """Cosines of the pictures from ``a`` on with those from ``b`` on, as seen by the former."""
        part = slice(a, a + len(cosine_AB))
        if a not in self._begun:
            self._fill(a, b, cosine_AB)
            return
        place_M = np.flatnonzero(cosine_AB > self.cosine_NK[part, -1:])
        at_M, of_M = np.divmod(place_M, cosine_AB.shape[1])
        self._merge(part, at_M, of_M + b, cosine_AB.ravel()[place_M])

    def by_columns(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """The same, as seen by the latter: the block is read as it lies, and only what is found is turned."""
        import torch

        part = slice(b, b + cosine_AB.shape[1])
        if b not in self._begun:
            self._fill(b, a, torch.from_numpy(cosine_AB).T.contiguous().numpy())  # three times as fast as numpy's
            return
        place_M = np.flatnonzero(cosine_AB > self.cosine_NK[part, -1])
        of_M, at_M = np.divmod(place_M, cosine_AB.shape[1])
        order_M = np.argsort(at_M, kind="stable")
        self._merge(part, at_M[order_M], of_M[order_M] + a, cosine_AB.ravel()[place_M[order_M]])

    def _fill(self, a: int, b: int, cosine_AB: np.ndarray) -> None:
        """The first block of the rows from ``a`` on."""
        import torch

        self._begun.add(a)
        cosine_AK, place_AK = torch.from_numpy(cosine_AB).topk(min(self.k, cosine_AB.shape[1]), 1)
        part = (slice(a, a + len(cosine_AB)), slice(0, cosine_AK.shape[1]))
        self.cosine_NK[part] = cosine_AK.numpy()
        self.rows_NK[part] = np.where(self.cosine_NK[part] > -np.inf, place_AK.numpy() + b, -1)

    def _merge(self, part: slice, at_M: np.ndarray, row_M: np.ndarray, cosine_M: np.ndarray) -> None:
        """Finds of the rows of ``part``, ordered by row: the m-th of a row goes to the m-th place behind its k."""
        import torch

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


def _settled(vectors: Vectors, best: _Best, k: int, max_cosine: float | None) -> Neighbours:
    """The first k of each picture's candidates, in the order that float64 gives, ties by row.

    Only cosines that float32 cannot tell from the next one are computed once more.
    """
    n, kept = best.rows_NK.shape
    rows_NK, cosine_NK = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        rows_QK, cosine_QK = best.rows_NK[part], best.cosine_NK[part]
        near_QK = _near(cosine_QK) & (rows_QK >= 0)
        value_QK = np.round(cosine_QK.astype(np.float64), DIGITS)
        query_M, place_M = near_QK.nonzero()
        value_QK[query_M, place_M] = vectors.cosines(query_M + start, rows_QK[query_M, place_M])
        order_QK = np.lexsort((rows_QK, -value_QK), axis=1)[:, :k]
        rows_NK[part] = np.take_along_axis(rows_QK, order_QK, 1)
        cosine_NK[part] = np.take_along_axis(value_QK, order_QK, 1)
    if kept < n - 1:  # what was cut off may belong before the cut: nearly equal, many times
        last_N, kth_N = best.cosine_NK[:, -1], best.cosine_NK[:, k - 1]
        for row in np.flatnonzero((last_N > -np.inf) & (last_N >= kth_N - ROUNDING)):
            rows_NK[row], cosine_NK[row] = _one_row(vectors, int(row), k, max_cosine)
    return Neighbours(rows_NK, cosine_NK)


def _near(cosine_QK: np.ndarray) -> np.ndarray:
    """Which of these cosines (falling along a row) are nearly equal to the one before or after."""
    near_QK = np.zeros(cosine_QK.shape, bool)
    with np.errstate(invalid="ignore"):  # −inf less −inf
        gap_QK = cosine_QK[:, :-1] - cosine_QK[:, 1:] <= ROUNDING
    near_QK[:, :-1] |= gap_QK
    near_QK[:, 1:] |= gap_QK
    return near_QK


def _one_row(vectors: Vectors, row: int, k: int, max_cosine: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The first k neighbours of one picture, all in float64."""
    n = len(vectors)
    cosine_N = vectors.cosines(np.full(n, row), np.arange(n))
    if max_cosine is not None:
        cosine_N[cosine_N > max_cosine + ROUNDING / 2] = -np.inf
    cosine_N[row] = -np.inf
    first_K = np.lexsort((np.arange(n), -cosine_N))[:k]
    return np.where(cosine_N[first_K] > -np.inf, first_K, -1), cosine_N[first_K]
