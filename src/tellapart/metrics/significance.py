"""Intervals and paired tests for what evaluation prints: the bootstrap and a permutation test.

One value per item in, NaN where an item abstains (it is left out, and ``n`` says how many count).
Corpus numbers that are no mean (vocabulary, BLEU) come as a *statistic* (`tellapart.metrics.resampling`).
Everything is seeded, so a table can be reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tellapart.metrics.draws import Drawn, Draws
from tellapart.metrics.resampling import Statistic, SummedStatistic, bounds_of

RESAMPLES = 1000
LEVEL = 0.95
ALPHA = 0.05  # 1 − LEVEL
EQUAL = 1e-6  # differences below are equal: the COCO tools' BLEU adds 1e-15 to every count
PLACES = 6  # decimals with which no difference is printed as a zero that it is not
FEW, VERY_FEW = 30, 5  # values other than the usual one, below which a resample may have none of them
Bounds = tuple[float, float]
UNBOUNDED: Bounds = (-math.inf, math.inf)
PERCENT: Bounds = (0.0, 100.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its bootstrap percentile interval; ``n`` items count in it."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its interval and its two-sided p-value: p < 0.05 exactly where the 95 % interval leaves
    zero out (`_difference`)."""

    value: float
    low: float
    high: float
    n: int
    p: float

    @property
    def clear(self) -> bool:
        """See `is_clear`."""
        return is_clear(self.value, self.low, self.high, self.p)


def is_clear(value: float, low: float, high: float, p: float | None = None) -> bool:
    """Whether a difference is more than chance: the one rule of tables, headlines and pages.

    The 95 % interval leaves zero out, p is below 0.05, and the difference is at least `EQUAL`. The three agree in
    results of this version, and may not in older ones.
    """
    return abs(value) >= EQUAL and (low > 0 or high < 0) and (p is None or p < ALPHA)


def places_for(places: int, difference: Iterable[float | None]) -> int:
    """``places`` decimals, or as many more as show no bound of a difference as a zero that it is not."""
    for x in difference:
        while x and places < PLACES and abs(x) >= EQUAL and round(x, places) == 0:
            places += 1
    return places


_NAN = float("nan")


class MeanTest:
    """The mean of the values that are not NaN, of one system or of a paired difference, to be drawn by ``draws``.

    ``weight_N``: how many observations each value is the mean of; n is their sum. Items are resampled, with all of
    their observations. paired: also draws what `difference` needs. bounds: the least and the greatest value of an item,
    for intervals of rare events (`ends_of`).
    """

    def __init__(
        self,
        draws: Draws,
        value_N: np.ndarray,
        weight_N: np.ndarray | None = None,
        *,
        paired: bool = False,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._bounds, self._seed = bounds, draws.seed
        self._kept_N, self._weight_N = kept_N, weight_N = _kept(value_N, weight_N)
        self._sum_N = kept_N if weight_N is None else kept_N * weight_N
        if not len(kept_N):
            return
        if (kept_N == kept_N[0]).all():
            self._drawn = Drawn(np.full(draws.resamples, kept_N[0]))
        elif weight_N is None:
            mean = SummedStatistic(kept_N[:, None], partial(_over, len(kept_N)))
            self._drawn = draws.bootstrap(mean, len(kept_N))
        else:
            ratio = SummedStatistic(np.stack([self._sum_N, weight_N], axis=1), _ratio)
            self._drawn = draws.bootstrap(ratio, len(kept_N))
        if paired:
            self._flipped = draws.flip(self._sum_N)

    def interval(self, level: float = LEVEL) -> Interval:
        """The mean with its percentile bootstrap interval."""
        kept_N, weight_N = self._kept_N, self._weight_N
        if not len(kept_N):
            return Interval(_NAN, _NAN, _NAN, 0)
        low_R, high_R = ends_of(self._drawn.values_R, kept_N, self._bounds, self._seed)
        low, high = _percentiles(low_R, level)[0], _percentiles(high_R, level)[1]
        return Interval(_mean(kept_N, weight_N), low, high, _size(kept_N, weight_N))

    def difference(self, level: float = LEVEL) -> Difference:
        """The interval, and the p-value of random signs, which are the same as swapping two systems at an item."""
        found = self.interval(level)
        if not found.n:
            return Difference(_NAN, _NAN, _NAN, 0, _NAN)
        size = float(np.abs(self._sum_N).sum()) / found.n
        return _difference(found, self._flipped.values_R / found.n, size, self._drawn.values_R, level)


def mean_interval(
    value_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """The mean of the values that are not NaN, with its percentile bootstrap interval: see `MeanTest`."""
    draws = Draws(resamples, seed)
    test = MeanTest(draws, value_N, weight_N, bounds=bounds)
    draws.run()
    return test.interval(level)


@dataclass(frozen=True)
class Resampled:
    """A corpus statistic of n items, and what it is in each resample of them.

    value_N: what it is of each item alone, where that is known (for intervals of rare events, `ends_of`).
    """

    statistic: Statistic
    n: int
    value: float
    drawn_R: np.ndarray
    value_N: np.ndarray | None = None
    seed: int = 0

    def interval(self, level: float = LEVEL) -> Interval:
        """The statistic with a bootstrap interval centred on it.

        A resample draws an item twice and misses another, so that a count of distinct words is always too
        low in it. The bootstrap distribution is therefore moved so that its mean is the statistic itself:
        the width is the bootstrap's, the place is the estimate's. It ends where the statistic's range does.
        """
        least, most = bounds = bounds_of(self.statistic)
        low_R, high_R = ends_of(_centred(self.drawn_R, self.value), self.value_N, bounds, self.seed)
        low, high = _percentiles(low_R, level)[0], _percentiles(high_R, level)[1]
        return Interval(self.value, max(low, least), min(high, most), self.n)


def resample(statistic: Statistic, n: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Resampled:
    """Draw a statistic's bootstrap distribution. Equal n, resamples and seed draw the same items: pairs are paired.

    Of a `GrowingStatistic` see `tellapart.metrics.draws`.
    """
    if n < 1:
        raise ValueError("a statistic of no items cannot be resampled")
    draws = Draws(resamples, seed)
    drawn = draws.bootstrap(statistic, n)
    draws.run()
    return Resampled(statistic, n, statistic(np.ones(n)), drawn.values_R, seed=seed)


def paired_difference(
    value_N: np.ndarray,
    baseline_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
    bounds: Bounds = UNBOUNDED,
) -> Difference:
    """The mean of value − baseline over the items where neither is NaN; ``weight_N`` and ``bounds`` (of a value, not of
    a difference) as in `MeanTest`."""
    draws = Draws(resamples, seed)
    test = MeanTest(
        draws, paired_values(value_N, baseline_N), weight_N, paired=True, bounds=bounds_of_difference(bounds)
    )
    draws.run()
    return test.difference(level)


def paired_values(value_N: np.ndarray, baseline_N: np.ndarray) -> np.ndarray:
    """value − baseline in float64."""
    difference_N: np.ndarray = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    return difference_N


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
    draws = Draws(resamples, seed)
    swapped = draws.swap_pooled(pooled, system.n)
    draws.run()
    return difference_of(system, baseline, swapped, level)


def difference_of(system: Resampled, baseline: Resampled, swapped: Drawn, level: float = LEVEL) -> Difference:
    """The difference of a corpus statistic, from its resamples and from `Draws.swap`."""
    observed = system.value - baseline.value
    drawn_R = _centred(system.drawn_R - baseline.drawn_R, observed)
    known = system.value_N is not None and baseline.value_N is not None
    difference_N = paired_values(system.value_N, baseline.value_N) if known else None  # type: ignore[arg-type]
    low_R, high_R = ends_of(drawn_R, difference_N, bounds_of_difference(bounds_of(system.statistic)), system.seed)
    found = Interval(observed, _percentiles(low_R, level)[0], _percentiles(high_R, level)[1], system.n)
    return _difference(found, swapped.values_R, abs(observed), drawn_R, level)


def _difference(found: Interval, swapped_R: np.ndarray, size: float, drawn_R: np.ndarray, level: float) -> Difference:
    """The interval of the bootstrap and the p-value of the permutation test, made to say the same of zero.

    Where they contradict each other, the cautious one holds: an interval is extended to a zero that the permutations do
    not rule out, and p is the bootstrap's where its interval holds zero. What is below `EQUAL` is zero.
    """
    value, low, high = (0.0 if abs(x) < EQUAL else x for x in (found.value, found.low, found.high))
    p, alpha = _p_value(swapped_R, value, size), round(1 - level, 9)
    if p >= alpha:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        beyond = min(np.count_nonzero(drawn_R <= 0), np.count_nonzero(drawn_R >= 0))
        p = max(p, alpha, min(1.0, (1 + 2 * int(beyond)) / (1 + len(drawn_R))))
    return Difference(value, low, high, found.n, p)


def bounds_of_difference(bounds: Bounds) -> Bounds:
    """The least and the greatest difference of two values within ``bounds``."""
    return bounds[0] - bounds[1], bounds[1] - bounds[0]


def ends_of(
    drawn_R: np.ndarray, value_N: np.ndarray | None, bounds: Bounds, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Resampled means from which the lower and the upper end of an interval are read.

    Both are ``drawn_R``, unless most values are one and the same and fewer than `FEW` are others, such as captions that
    repeat words: resamples then know nothing of what n items happened not to show, and an interval of no events is
    [0, 0]. One more value with a random weight, Beta(1, n), stands for the unseen: the least one for the lower end, the
    greatest one for the upper; of fewer than `VERY_FEW` others that is the metric's bound. For events that happen or
    do not this is the exact interval (Clopper and Pearson 1934), for other values the bound of Learned-Miller and
    Thomas (2019, arXiv:1905.06208). A metric without bounds keeps ``drawn_R``.
    """
    value_N = np.zeros(0) if value_N is None else value_N[~np.isnan(value_N)]
    if not len(value_N) or not np.isfinite(bounds).all():
        return drawn_R, drawn_R
    values, count = np.unique(value_N, return_counts=True)
    n, others = len(value_N), len(value_N) - int(count.max())
    if others >= min(FEW, n / 2):
        return drawn_R, drawn_R
    least, most = bounds if others < VERY_FEW else (values[0], values[-1])
    weight_R = np.random.default_rng([seed, n]).beta(1, n, len(drawn_R))
    rest_R = (1 - weight_R) * drawn_R
    return rest_R + weight_R * least, rest_R + weight_R * most


def format_p(p: float) -> str:
    """A p-value with three digits: below a thousandth "<0.001", never 0; just below 0.05 "<0.050", never that."""
    if p < 0.001 - 1e-9:
        return "<0.001"
    text = f"{p:.3f}"
    return f"<{text}" if p < ALPHA - 1e-9 and text == "0.050" else text


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
    equal = (kept_N == kept_N[0]).all()
    return 0.0 + float(kept_N[0] if equal else np.average(kept_N, weights=weight_N))


def _centred(drawn_R: np.ndarray, value: float) -> np.ndarray:
    if (drawn_R == value).all() or np.isnan(drawn_R).all():
        return drawn_R
    centred_R: np.ndarray = drawn_R + (value - np.nanmean(drawn_R))
    return centred_R


def _percentiles(drawn_R: np.ndarray, level: float) -> tuple[float, float]:
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # a resample in which the statistic is 0 of 0
    if not len(drawn_R):
        return _NAN, _NAN
    places = np.array([(1 - level) / 2, (1 + level) / 2]) * (len(drawn_R) - 1)
    low, high = np.interp(places, np.arange(len(drawn_R)), np.sort(drawn_R))  # np.quantile loads numpy.ma
    return float(low) + 0.0, float(high) + 0.0  # no minus sign before a zero


def _p_value(drawn_R: np.ndarray, observed: float, size: float) -> float:
    """Share of permutations at least as far from zero as what was seen, which counts as one of them."""
    if np.isnan(observed):
        return _NAN
    as_far = int(np.count_nonzero(np.abs(drawn_R) >= abs(observed) - 1e-9 * size))
    return (1 + as_far) / (1 + len(drawn_R))


def _over(count: int, sum_RC: np.ndarray) -> np.ndarray:
    return sum_RC[..., 0] / count


def _ratio(sum_R2: np.ndarray) -> np.ndarray:
    ratio_R: np.ndarray = sum_R2[..., 0] / sum_R2[..., 1]
    return ratio_R
