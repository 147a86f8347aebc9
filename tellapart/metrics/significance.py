"""Intervals and paired tests for what evaluation prints: the bootstrap and a permutation test.

One value per item in, NaN where an item abstains (it is left out, and ``n`` says how many count).
Corpus numbers that are no mean (vocabulary, BLEU) come as a *statistic* (`tellapart.metrics.resampling`).
Everything is seeded, so a table can be reproduced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tellapart.metrics.resampling import (
    Statistic,
    SummedStatistic,
    bootstrap_weights,
    disjoint_halves,
    evaluate_many,
    grows,
    random_swaps,
)

RESAMPLES = 1000
LEVEL = 0.95


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
    low, high = _percentiles(_bootstrap_means(kept_N, weight_N, resamples, seed), level)
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
    if not grows(statistic):
        return Resampled(statistic, n, value, _bootstrap(statistic, n, resamples, seed))
    halves = [
        (evaluate_many(statistic, a_RN), evaluate_many(statistic, b_RN))
        for a_RN, b_RN in disjoint_halves(n, resamples, seed)
    ]
    a_R, b_R = (np.concatenate(side) for side in zip(*halves, strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    return Resampled(statistic, n, value, value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5))


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
    low, high = _percentiles(_bootstrap_means(kept_N, weight_N, resamples, seed), level)
    observed, size = _mean(kept_N, weight_N), _size(kept_N, weight_N)
    sum_N = kept_N if weight_N is None else kept_N * weight_N
    flipped = [(1.0 - 2.0 * swap_RN) @ sum_N / size for swap_RN in random_swaps(len(kept_N), resamples, seed)]
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
        evaluate_many(pooled, np.concatenate([1 - swap_RN, swap_RN], axis=1))
        - evaluate_many(pooled, np.concatenate([swap_RN, 1 - swap_RN], axis=1))
        for swap_RN in random_swaps(system.n, resamples, seed)
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


def _bootstrap(statistic: Statistic, n: int, resamples: int, seed: int) -> np.ndarray:
    """The statistic in each resample of n items."""
    drawn = [evaluate_many(statistic, weight_RN) for weight_RN in bootstrap_weights(n, resamples, seed)]
    return np.concatenate(drawn)


def _bootstrap_means(kept_N: np.ndarray, weight_N: np.ndarray | None, resamples: int, seed: int) -> np.ndarray:
    if (kept_N == kept_N[0]).all():
        return np.full(resamples, kept_N[0])
    size_N = np.ones(len(kept_N)) if weight_N is None else weight_N
    return _bootstrap(
        SummedStatistic(np.stack([kept_N * size_N, size_N], axis=1), _ratio), len(kept_N), resamples, seed
    )


def _ratio(sum_R2: np.ndarray) -> np.ndarray:
    ratio_R: np.ndarray = sum_R2[..., 0] / sum_R2[..., 1]
    return ratio_R
