"""Intervals and paired tests for what evaluation prints: the bootstrap and a permutation test.

One value per item in, NaN where an item abstains (it is left out, and ``n`` says how many count).
Corpus numbers that are no mean (vocabulary, BLEU) come as a *statistic*: a function from integer
weights of the items to the number. One that is made of sums over items is a `SummedStatistic`, resampled by matrix
products; one that grows with the number of items is a `GrowingStatistic`, resampled by halves.
Everything is seeded, so a table can be printed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Statistic = Callable[[np.ndarray], float]

RESAMPLES = 1000
LEVEL = 0.95
_BLOCK_CELLS = 2_000_000  # resampled cells held at a time: 16 MB of indices


@dataclass(frozen=True, eq=False)
class SummedStatistic:
    """A number made of sums over items: ``number`` takes counts with C on the last axis and drops that axis."""

    counts_NC: np.ndarray
    number: Callable[[np.ndarray], np.ndarray]

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
        return self.scale * np.mean([_many(statistic, weight_RN) for statistic in self.statistics], axis=0)


def _many(statistic: Statistic, weight_RN: np.ndarray) -> np.ndarray:
    if isinstance(statistic, SummedStatistic | MeanStatistic):
        return statistic.many(weight_RN)
    return np.array([statistic(weight_N) for weight_N in weight_RN])


def _grows(statistic: Statistic) -> bool:
    if isinstance(statistic, MeanStatistic):
        return any(map(_grows, statistic.statistics))
    return isinstance(statistic, GrowingStatistic)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its bootstrap percentile interval; ``n`` items count in it."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its interval, and the two-sided p-value of the permutation test."""

    value: float
    low: float
    high: float
    n: int
    p: float


_NAN = float("nan")


def mean_interval(
    value_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> Interval:
    """The mean of the values that are not NaN, with its percentile bootstrap interval.

    ``weight_N``: how many observations each value is the mean of; n is their sum. Items are resampled, with all of
    their observations.
    """
    kept_N, weight_N = _kept(value_N, weight_N)
    if not len(kept_N):
        return Interval(_NAN, _NAN, _NAN, 0)
    low, high = _percentiles(_resampled_means(kept_N, weight_N, resamples, seed), level)
    return Interval(_mean(kept_N, weight_N), low, high, _size(kept_N, weight_N))


@dataclass(frozen=True)
class Resampled:
    """A corpus statistic of n items, and what it is in each resample of them."""

    statistic: Statistic
    n: int
    value: float
    drawn_R: np.ndarray

    def interval(self, level: float = LEVEL) -> Interval:
        """The statistic with a bootstrap interval centred on it.

        A resample draws an item twice and misses another, so that a count of distinct words is always too
        low in it. The bootstrap distribution is therefore moved so that its mean is the statistic itself:
        the width is the bootstrap's, the place is the estimate's.
        """
        return Interval(self.value, *_percentiles(_centred(self.drawn_R, self.value), level), self.n)


def resample(statistic: Statistic, n: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Resampled:
    """Draw a statistic's bootstrap distribution. Equal n, resamples and seed draw the same items: pairs are paired.

    Of a `GrowingStatistic` V the draws are V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)) over random halves of
    the items: the difference of two disjoint halves has twice the variance of V(n/2), whatever V is, and the variance
    of a count of distinct things grows with n as the count does (as the expected count does for Poisson samples of a
    power law).
    """
    if n < 1:
        raise ValueError("a statistic of no items cannot be resampled")
    value = statistic(np.ones(n))
    if not _grows(statistic):
        drawn = [_many(statistic, weight_RN) for weight_RN in _weights(n, resamples, seed)]
        return Resampled(statistic, n, value, np.concatenate(drawn))
    halves = [(_many(statistic, a_RN), _many(statistic, b_RN)) for a_RN, b_RN in _halves(n, resamples, seed)]
    a_R, b_R = (np.concatenate(side) for side in zip(*halves, strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    return Resampled(statistic, n, value, value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5))


def _halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Weights of two disjoint halves of the items, R×N each; of an odd number one item is in neither."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        place_RN = np.argsort(rng.random((rows, n)), axis=1)
        yield (place_RN < n // 2).astype(float), (place_RN >= n - n // 2).astype(float)


def _weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each resample draws each item, R×N, a block of resamples at a time."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def paired_difference(
    value_N: np.ndarray,
    baseline_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> Difference:
    """The mean of value − baseline over the items where neither is NaN; ``weight_N`` as in `mean_interval`.

    The interval resamples items; p flips the sign of each item's difference, which is the same as
    swapping the two systems there.
    """
    difference_N = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    kept_N, weight_N = _kept(difference_N, weight_N)
    if not len(kept_N):
        return Difference(_NAN, _NAN, _NAN, 0, _NAN)
    low, high = _percentiles(_resampled_means(kept_N, weight_N, resamples, seed), level)
    observed, size = _mean(kept_N, weight_N), _size(kept_N, weight_N)
    sum_N = kept_N if weight_N is None else kept_N * weight_N
    flipped = [(1.0 - 2.0 * swap_RN) @ sum_N / size for swap_RN in _swaps(len(kept_N), resamples, seed)]
    p = _p_value(np.concatenate(flipped), observed, np.abs(sum_N).sum() / size)
    return Difference(observed, low, high, size, p)


def paired_resampled(
    system: Resampled,
    baseline: Resampled,
    pooled: Statistic,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
) -> Difference:
    """The difference of a corpus statistic between two systems over the same items, drawn with the same seed.

    ``pooled`` is the statistic over the 2n captions of both, the system's first: the permutation test
    gives each item's two captions to the two sides at random.
    """
    observed = system.value - baseline.value
    low, high = _percentiles(_centred(system.drawn_R - baseline.drawn_R, observed), level)
    swapped = [
        _many(pooled, np.concatenate([1 - swap_RN, swap_RN], axis=1))
        - _many(pooled, np.concatenate([swap_RN, 1 - swap_RN], axis=1))
        for swap_RN in _swaps(system.n, resamples, seed)
    ]
    return Difference(observed, low, high, system.n, _p_value(np.concatenate(swapped), observed, abs(observed)))


def format_p(p: float) -> str:
    """A p-value with three digits; below a thousandth "<0.001", never 0."""
    return "<0.001" if p < 0.001 - 1e-9 else f"{p:.3f}"


def _kept(value_N: np.ndarray, weight_N: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Values that are there, and their weights where some differ from 1."""
    value_N = np.asarray(value_N, dtype=float)
    known_N = ~np.isnan(value_N)
    if weight_N is not None:
        known_N &= weight_N > 0
        weight_N = weight_N[known_N].astype(float)
        weight_N = None if (weight_N == 1).all() else weight_N
    return value_N[known_N], weight_N


def _size(kept_N: np.ndarray, weight_N: np.ndarray | None) -> int:
    return len(kept_N) if weight_N is None else round(float(weight_N.sum()))


def _mean(kept_N: np.ndarray, weight_N: np.ndarray | None = None) -> float:
    # The mean of equal numbers is that number, to the last bit: a constant has an interval of width zero.
    return float(kept_N[0]) if (kept_N == kept_N[0]).all() else float(np.average(kept_N, weights=weight_N))


def _resampled_means(kept_N: np.ndarray, weight_N: np.ndarray | None, resamples: int, seed: int) -> np.ndarray:
    if (kept_N == kept_N[0]).all():
        return np.full(resamples, kept_N[0])
    if weight_N is not None:
        sums = SummedStatistic(
            np.stack([kept_N * weight_N, weight_N], axis=1), lambda sum_R2: sum_R2[..., 0] / sum_R2[..., 1]
        )
        return np.concatenate([sums.many(drawn_RN) for drawn_RN in _weights(len(kept_N), resamples, seed)])
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            kept_N[rng.integers(len(kept_N), size=(rows, len(kept_N)))].mean(1)
            for rows in _blocks(resamples, len(kept_N))
        ]
    )


def _swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([seed, 1])  # other draws than the bootstrap's
    for rows in _blocks(resamples, n):
        yield rng.integers(2, size=(rows, n), dtype=np.int8).astype(float)


def _blocks(resamples: int, n: int) -> Iterator[int]:
    rows = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


def _centred(drawn_R: np.ndarray, value: float) -> np.ndarray:
    if (drawn_R == value).all() or np.isnan(drawn_R).all():
        return drawn_R
    return drawn_R + (value - np.nanmean(drawn_R))


def _percentiles(drawn_R: np.ndarray, level: float) -> tuple[float, float]:
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # a resample in which the statistic is 0 of 0
    if not len(drawn_R):
        return _NAN, _NAN
    places = np.array([(1 - level) / 2, (1 + level) / 2]) * (len(drawn_R) - 1)
    low, high = np.interp(places, np.arange(len(drawn_R)), np.sort(drawn_R))  # np.quantile loads numpy.ma
    return float(low), float(high)


def _p_value(drawn_R: np.ndarray, observed: float, size: float) -> float:
    """Share of permutations at least as far from zero as what was seen, which counts as one of them."""
    if np.isnan(observed):
        return _NAN
    as_far = int(np.count_nonzero(np.abs(drawn_R) >= abs(observed) - 1e-9 * size))
    return (1 + as_far) / (1 + len(drawn_R))
