"""Decision rule for a part of a claim: the same sign on every seed, and an interval over pictures and seeds.

A `Statistic` is a measure of one arm with one seed, as a function of how often each picture is drawn. One bootstrap
therefore serves means, ratios of sums and counts of distinct words, and differences between arms on the same pictures
are paired. With one seed, the interval is over pictures only. Unlike `tellapart.metrics.system_statistics`, which
compares two systems, it also resamples seeds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from replication.multiple import ALPHA, part_p
from tellapart.metrics.draws import RESAMPLES, bootstrap_weights


@dataclass(frozen=True)
class Statistic:
    """``compute(weight_RN) -> value_R`` over the N pictures named by ``picture_key``.

    weight_RN: how often resample R draws picture N.
    setting: n, candidates and chance, if the statistic is a recall.
    """

    picture_key: str
    n: int
    compute: Callable[[np.ndarray], np.ndarray]
    setting: str = ""

    def value(self) -> float:
        """Returns the point estimate, with every picture drawn once."""
        return float(self.compute(np.ones((1, self.n)))[0])


def ratio_statistic(
    picture_key: str, numerator_N: npt.ArrayLike, denominator_N: npt.ArrayLike | None = None
) -> Statistic:
    """Returns Σ numerator / Σ denominator over the pictures, or the mean. Skips pictures whose numerator is NaN."""
    values_N = np.asarray(numerator_N, dtype=float)
    valid_N = ~np.isnan(values_N)
    below_N = np.where(valid_N, 1.0 if denominator_N is None else np.asarray(denominator_N, dtype=float), 0.0)
    above_N = np.where(valid_N, values_N, 0.0)

    def compute(weight_RN: np.ndarray) -> np.ndarray:
        below_R = weight_RN @ below_N
        value_R: np.ndarray = np.divide(
            weight_RN @ above_N, below_R, out=np.full(len(weight_RN), np.nan), where=below_R > 0
        )
        return value_R

    return Statistic(picture_key, len(above_N), compute)


def weighted_statistic(picture_key: str, n: int, function: Callable[[np.ndarray], float]) -> Statistic:
    """Builds a statistic other than a ratio of sums, such as vocabulary size, from a function of one row of weights."""
    return Statistic(picture_key, n, lambda weight_RN: np.array([function(weight_N) for weight_N in weight_RN]))


@dataclass(frozen=True)
class PartResult:
    """Result of one part of a claim: mean over seeds, 95 % interval, the value of each seed, and whether it holds.

    p: one-sided p-value for the bound, or of two one-sided tests for two bounds (`replication.multiple`).
    drawn_R: the mean in each resample, for intervals at other levels.
    """

    statement: str
    value: float
    low: float
    high: float
    seeds: tuple[float, ...]
    holds: bool
    p: float = math.nan
    drawn_R: np.ndarray | None = field(default=None, compare=False, repr=False)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Returns the percentile interval with ``alpha`` in each tail. Without stored draws, returns the 95 % one."""
        if self.drawn_R is None:
            return self.low, self.high
        low, high = np.nanquantile(self.drawn_R, [alpha, 1 - alpha])
        return float(low), float(high)


WeightedStatistics = Sequence[tuple[float, Sequence[Statistic]]]


def draw_seeds(weighted_statistics: WeightedStatistics, resamples: int = RESAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Returns (value_S, drawn_SR): Σ factor · statistic per seed, and in each resample of the pictures.

    ``weighted_statistics``: pairs (factor, one statistic per seed).
    """
    count = len(weighted_statistics[0][1])
    weights = {
        statistic.picture_key: resample_weights(statistic.picture_key, statistic.n, resamples)
        for _, statistics in weighted_statistics
        for statistic in statistics
    }
    value_S, drawn_SR = np.zeros(count), np.zeros((count, resamples))
    for factor, statistics in weighted_statistics:
        for seed, statistic in enumerate(statistics):
            value_S[seed] += factor * statistic.value()
            drawn_SR[seed] += factor * statistic.compute(weights[statistic.picture_key])
    # A resample misses some pictures, which biases counts of words. Therefore, only its spread is used, not its centre.
    drawn_SR += (value_S - np.nanmean(drawn_SR, axis=1))[:, None]
    return value_S, drawn_SR


def compare_with_bounds(
    statement: str,
    weighted_statistics: WeightedStatistics,
    lower: float = 0.0,
    upper: float = math.inf,
    resamples: int = RESAMPLES,
    *,
    every_seed: bool = True,
) -> PartResult:
    """Compares Σ factor · statistic with the bounds. ``weighted_statistics``: see `draw_seeds`.

    With one finite bound, the part holds if the whole interval lies on the correct side and, with ``every_seed``, each
    seed's value, too; with two finite bounds, if the interval lies between them. Seeds and pictures are both resampled
    with replacement. A part that is NaN in any resample does not hold.
    """
    value_S, drawn_SR = draw_seeds(weighted_statistics, resamples)
    seed_RS = resampled_seeds(len(value_S), resamples)
    mean_R = drawn_SR[seed_RS, np.arange(resamples)[:, None]].mean(1)
    low, high = map(float, np.nanquantile(mean_R, [ALPHA, 1 - ALPHA]))
    judged_S = value_S if every_seed else value_S.mean(keepdims=True)
    holds = verdict(judged_S, low, high, lower, upper) and bool(np.isfinite(mean_R).all())
    p, seeds = part_p(mean_R, lower, upper), tuple(map(float, value_S))
    return PartResult(statement, float(value_S.mean()), low, high, seeds, holds, p, mean_R)


def resampled_seeds(count: int, resamples: int) -> np.ndarray:
    """Returns seed_RS: the seeds that each resample draws, which are the same for every part and claim."""
    seed_RS: np.ndarray = np.random.default_rng([0, count]).integers(count, size=(resamples, count))
    return seed_RS


def verdict(value_S: Sequence[float] | np.ndarray, low: float, high: float, lower: float, upper: float) -> bool:
    """Applies the rule of `compare_with_bounds`. Returns False if any value is NaN."""
    if not np.isfinite([*value_S, low, high]).all():
        return False
    inside = lower < low and high < upper
    if math.isfinite(lower) and math.isfinite(upper):
        return inside
    return inside and all(lower < value < upper for value in value_S)


@lru_cache(maxsize=16)  # room for every test set of the claims
def resample_weights(picture_key: str, n: int, resamples: int) -> np.ndarray:
    """Returns weight_RN: how often each resample draws each picture. It is the same for all arms on these pictures."""
    weight_RN = np.concatenate(list(bootstrap_weights(n, resamples, zlib.crc32(picture_key.encode()))))
    weight_RN.flags.writeable = False
    return weight_RN
