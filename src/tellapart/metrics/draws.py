"""Seeded bootstrap resamples and permutations of units, which are items or clusters of dependent items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

RESAMPLES = 1000
_BLOCK_CELLS = 2_000_000  # maximum number of resampled cells in memory at once: 16 MB of indices
Weights = Callable[[int, int, int], Iterator[np.ndarray]]


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields, for each bootstrap resample, how often it draws each of n units."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields, for each permutation, 1 for the units whose two systems it swaps and 0 for all other units."""
    rng = np.random.default_rng([seed, 1])  # a random stream different from the bootstrap's
    for rows in _blocks(resamples, n):
        yield rng.integers(2, size=(rows, n), dtype=np.int8).astype(float)


def disjoint_halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields pairs of disjoint halves of the items. If n is odd, one item is in neither half."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        place_RN = np.argsort(rng.random((rows, n)), axis=1)
        yield (place_RN < n // 2).astype(float), (place_RN >= n - n // 2).astype(float)


def _blocks(resamples: int, n: int) -> Iterator[int]:
    rows = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


class Draws:
    """Bootstrap resamples and permutations of the units of several statistics.

    Statistics with the same number of units share weights. They are summed in one matrix product, when the first of the
    sums is needed.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.resamples, self.seed = resamples, seed
        self._asked: dict[tuple[Weights, int], list[np.ndarray]] = defaultdict(list)
        self._sums: dict[tuple[Weights, int], list[np.ndarray]] = defaultdict(list)

    def ask(self, weights: Weights, stats: np.ndarray) -> Callable[[], np.ndarray]:
        """Registers statistics, N×…. Returns a function that returns their sums in each resample, R×…."""
        asked = self._asked[weights, len(stats)]
        number = len(asked)
        asked.append(stats)
        return lambda: self._sums_of_asked(weights, len(stats))[number]

    def _sums_of_asked(self, weights: Weights, n: int) -> list[np.ndarray]:
        sums = self._sums[weights, n]
        if new := self._asked[weights, n][len(sums) :]:
            parts = [stats.reshape(n, -1) for stats in new]
            joined = np.concatenate(parts, axis=1)
            sum_RC = np.concatenate([weight_RN @ joined for weight_RN in weights(n, self.resamples, self.seed)])
            ends = np.cumsum([part.shape[1] for part in parts])
            split = np.split(sum_RC, ends[:-1], axis=1)
            sums += [own.reshape(-1, *stats.shape[1:]) for own, stats in zip(split, new, strict=True)]
        return sums
