"""Statistics as functions of item weights, and the weights of bootstrap resamples and permutations.

A *statistic* maps integer weights of N items (how often a resample draws each) to a number. One that is made of sums
over items is a `SummedStatistic`: its counts per item are computed once, and all resamples are one matrix product. One
that grows with the number of items is a `GrowingStatistic`, resampled by halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

Statistic = Callable[[np.ndarray], float]

_BLOCK_CELLS = 2_000_000  # resampled cells held at a time: 16 MB of indices
_KEPT_CELLS = 10_000_000  # drawn cells kept from one metric to the next: 40 MB


@dataclass(frozen=True, eq=False)
class SummedStatistic:
    """A number made of sums over items: ``number`` takes counts with C on the last axis and drops that axis.

    ``bounds``: the least and the greatest number that there can be.
    """

    counts_NC: np.ndarray
    number: Callable[[np.ndarray], np.ndarray]
    bounds: tuple[float, float] = (-math.inf, math.inf)

    def __call__(self, weight_N: np.ndarray) -> float:
        return float(self.number(weight_N @ self.counts_NC))

    def many(self, weight_RN: np.ndarray) -> np.ndarray:
        """The number in each of R resamples."""
        return self.number(weight_RN @ self.counts_NC)


@dataclass(frozen=True, eq=False)
class GrowingStatistic:
    """A count that grows with the number of items, such as distinct words.

    A bootstrap resample repeats items, and so its distinct words vary otherwise than those of new items. Two disjoint
    halves of the items are new to each other: see `resample`.
    """

    statistic: Statistic

    def __call__(self, weight_N: np.ndarray) -> float:
        return self.statistic(weight_N)


@dataclass(frozen=True, eq=False)
class MeanStatistic:
    """The mean of several statistics over the same items, times a scale."""

    statistics: Sequence[Statistic]
    scale: float = 1.0

    def __call__(self, weight_N: np.ndarray) -> float:
        return self.scale * float(np.mean([statistic(weight_N) for statistic in self.statistics]))

    def many(self, weight_RN: np.ndarray) -> np.ndarray:
        """The mean in each of R resamples."""
        value_R: np.ndarray = np.mean([evaluate_many(each, weight_RN) for each in self.statistics], axis=0)
        return self.scale * value_R


def bounds_of(statistic: Statistic) -> tuple[float, float]:
    """The least and the greatest value that a statistic can have, as far as it says so."""
    if isinstance(statistic, GrowingStatistic):
        return 0.0, math.inf
    if isinstance(statistic, MeanStatistic):
        low, high = zip(*map(bounds_of, statistic.statistics), strict=True)
        return statistic.scale * min(low), statistic.scale * max(high)
    return statistic.bounds if isinstance(statistic, SummedStatistic) else (-math.inf, math.inf)


def evaluate_many(statistic: Statistic, weight_RN: np.ndarray) -> np.ndarray:
    """A statistic in each of R resamples: by matrix products where it is made of sums."""
    if isinstance(statistic, SummedStatistic | MeanStatistic):
        return statistic.many(weight_RN)
    return np.array([statistic(weight_N) for weight_N in weight_RN])


def summed_parts(statistic: Statistic) -> tuple[list[SummedStatistic], float] | None:
    """The sums that a statistic is the mean of, and its scale; None where it is made of other things."""
    if isinstance(statistic, SummedStatistic):
        return [statistic], 1.0
    if not isinstance(statistic, MeanStatistic):
        return None
    parts: list[SummedStatistic] = []
    scales = set()
    for inner in statistic.statistics:
        if (found := summed_parts(inner)) is None:
            return None
        parts += found[0]
        scales.add((len(found[0]), found[1]))
    if len(scales) != 1:  # parts that do not weigh alike
        return None
    ((_, scale),) = scales
    return parts, statistic.scale * scale


def grows(statistic: Statistic) -> bool:
    """Whether a statistic, or a part of it, counts what grows with the number of items."""
    if isinstance(statistic, MeanStatistic):
        return any(map(grows, statistic.statistics))
    return isinstance(statistic, GrowingStatistic)


def disjoint_halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights of two disjoint halves of the items, R×N each; of an odd number one item is in neither."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        place_RN = np.argsort(rng.random((rows, n)), axis=1)
        yield (place_RN < n // 2).astype(float), (place_RN >= n - n // 2).astype(float)


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each resample draws each of n items, R×N, a block of resamples at a time."""
    blocks = _kept_counts if resamples * n <= _KEPT_CELLS else _counts
    return (count_RN.astype(float) for count_RN in blocks(n, resamples, seed))


@lru_cache(maxsize=2)
def _kept_counts(n: int, resamples: int, seed: int) -> list[np.ndarray]:
    """Drawn once: every metric of an evaluation resamples the same items."""
    return list(_counts(n, resamples, seed))


def _counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(np.int32)


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Which items swap their systems in each permutation, R×N of 0 and 1."""
    rng = np.random.default_rng([seed, 1])  # other draws than the bootstrap's
    for rows in _blocks(resamples, n):
        yield rng.integers(2, size=(rows, n), dtype=np.int8).astype(float)


def _blocks(resamples: int, n: int) -> Iterator[int]:
    rows = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)
