"""The nearest neighbours of every picture of a data set: exact, in blocks, in bounded memory.

The matrix of cosines is symmetric, so each block is computed once and read twice, by rows and by columns: half the work
of `tellapart.features.nearest.nearest_among`, with the same tie rule. `tellapart.bags.approximate` searches a million.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tellapart.bags.approximate import APPROXIMATE_FROM, approximate_neighbours
from tellapart.features.nearest import BLOCK, SPARE, Exclusions, Neighbours, Vectors, order_candidates


def nearest_neighbours(
    features_ND: np.ndarray | Vectors,
    k: int,
    *,
    max_cosine: float | None = None,
    block: int = BLOCK,
    approximate: bool | None = None,
    progress: bool = True,
) -> Neighbours:
    """The k nearest other pictures of each picture, by the cosine of their features.

    features_ND: rows of any length. max_cosine: leaves out nearer pictures (paper 3: near-duplicates are at 0.8 and
    above). Order: by the cosine in float64, rounded to nine digits, equal cosines by row; it does not depend on
    ``block``. approximate: use FAISS (extra ``faiss``); None does from a million pictures on. Its recall against the
    exact search is measured on a sample and printed. Raises `UsageError` for features that are not finite.
    """
    vectors = features_ND if isinstance(features_ND, Vectors) else Vectors.of(features_ND)
    n = len(vectors)
    k = max(0, min(k, n - 1))
    if k == 0:
        return Neighbours(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32))
    if approximate if approximate is not None else n >= APPROXIMATE_FROM:
        return approximate_neighbours(vectors.unit_ND, k, max_cosine=max_cosine, progress=progress)
    row_N = np.arange(n)
    exclusions = Exclusions(row_N, row_N, max_cosine)
    kept = min(k + SPARE, n - 1)
    best = _exact(vectors.unit_ND, kept, exclusions, block, progress)
    complete = kept == n - 1
    return order_candidates(vectors, vectors, best.rows_NK, best.cosine_NK, k, exclusions, complete=complete)


def _exact(unit_ND: np.ndarray, k: int, exclusions: Exclusions, block: int, progress: bool) -> _Best:
    """The k largest cosines of each row, descending in float32."""
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
                if exclusions.max_cosine is not None:
                    cosine_AB.masked_fill_(cosine_AB > exclusions.limit, -torch.inf)
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
