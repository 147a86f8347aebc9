"""Intervals and paired tests for what evaluation prints: the bootstrap and a permutation test.

One value per item in, NaN where an item abstains (it is left out, and ``n`` says how many count).
Corpus numbers that are no mean (vocabulary, BLEU) come as a *statistic*: a function from integer
weights of the items to the number. Everything is seeded, so a table can be printed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Statistic = Callable[[np.ndarray], float]

RESAMPLES = 1000
LEVEL = 0.95
_BLOCK_CELLS = 2_000_000  # resampled cells held at a time: 16 MB of indices


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


def mean_interval(value_N: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL) -> Interval:
    """The mean of the values that are not NaN, with its percentile bootstrap interval."""
    value_N = np.asarray(value_N, dtype=float)
    kept_N = value_N[~np.isnan(value_N)]
    if not len(kept_N):
        return Interval(_NAN, _NAN, _NAN, 0)
    low, high = _percentiles(_resampled_means(kept_N, resamples, seed), level)
    return Interval(_mean(kept_N), low, high, len(kept_N))


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
    """Draw a statistic's bootstrap distribution. Equal n, resamples and seed draw the same items: pairs are paired."""
    if n < 1:
        raise ValueError("a statistic of no items cannot be resampled")
    rng = np.random.default_rng(seed)
    weights = (np.bincount(rng.integers(n, size=n), minlength=n).astype(float) for _ in range(resamples))
    return Resampled(statistic, n, statistic(np.ones(n)), np.array([statistic(weight_N) for weight_N in weights]))


def paired_difference(
    value_N: np.ndarray, baseline_N: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Difference:
    """The mean of value − baseline over the items where neither is NaN.

    The interval resamples items; p flips the sign of each item's difference, which is the same as
    swapping the two systems there.
    """
    difference_N = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    kept_N = difference_N[~np.isnan(difference_N)]
    if not len(kept_N):
        return Difference(_NAN, _NAN, _NAN, 0, _NAN)
    low, high = _percentiles(_resampled_means(kept_N, resamples, seed), level)
    observed = _mean(kept_N)
    flipped_R = np.concatenate(
        [(1.0 - 2.0 * swap_RN) @ kept_N / len(kept_N) for swap_RN in _swaps(len(kept_N), resamples, seed)]
    )
    return Difference(observed, low, high, len(kept_N), _p_value(flipped_R, observed, np.abs(kept_N).mean()))


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
    n, observed = system.n, system.value - baseline.value
    low, high = _percentiles(_centred(system.drawn_R - baseline.drawn_R, observed), level)
    swapped_R = np.array(
        [
            pooled(np.concatenate([1 - swap_N, swap_N])) - pooled(np.concatenate([swap_N, 1 - swap_N]))
            for swap_RN in _swaps(n, resamples, seed)
            for swap_N in swap_RN
        ]
    )
    return Difference(observed, low, high, n, _p_value(swapped_R, observed, abs(observed)))


def _mean(kept_N: np.ndarray) -> float:
    # The mean of equal numbers is that number, to the last bit: a constant has an interval of width zero.
    return float(kept_N[0]) if (kept_N == kept_N[0]).all() else float(kept_N.mean())


def _resampled_means(kept_N: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    if (kept_N == kept_N[0]).all():
        return np.full(resamples, kept_N[0])
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
