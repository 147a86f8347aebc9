"""Paired differences between two systems, with intervals and p-values.

The p-value comes from two-sided approximate randomization, which swaps the two systems' items (Noreen 1989; Riezler and
Maxwell 2005). As in sacrebleu, the interval and the p-value are computed independently and may disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Recounted, Sums, mean_of
from tellapart.metrics.draws import RESAMPLES, Draws, random_swaps
from tellapart.metrics.intervals import FEW, SINGLE, Estimate, count_unusual, interval_ends, mean_estimate

ALPHA = 0.05  # 1 − LEVEL
EQUAL = 1e-6  # smaller differences count as zero, since the COCO tools' BLEU adds 1e-15 to every count


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its 95% interval and two-sided p-value. Interval and p-value are computed independently.

    p_holm: the p-value after Holm's correction over all pairs and metrics, if requested.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    p_holm: float = math.nan

    @property
    def clear(self) -> bool:
        """Returns whether the difference counts as better or worse, that is, whether the p-value (corrected, if a
        correction was applied) is below 0.05.

        Tables, headlines and pages all use this rule. Differences below `EQUAL` count as zero.
        """
        return abs(self.value) >= EQUAL and (self.p if math.isnan(self.p_holm) else self.p_holm) < ALPHA

    def turned(self) -> Difference:
        """Returns the difference with the two systems swapped."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)


class PairedTest:
    """The difference between two systems' scores over the same units, with its interval and p-value."""

    procedure = SINGLE  # see `Estimate`

    def __init__(
        self, draws: Draws, system: Estimate, baseline: Estimate, value_N: np.ndarray | None, bounds: Bounds
    ) -> None:
        self.system, self.baseline, self.value_N, self.bounds, self._draws = system, baseline, value_N, bounds, draws
        if isinstance(system.corpus, Sums) and isinstance(baseline.corpus, Sums):
            self._sides = _alike(system.corpus, baseline.corpus)
            self._moved = draws.ask(random_swaps, self._sides[1].stats - self._sides[0].stats)

    def difference(self) -> Difference:
        """Returns system minus baseline. Differences below `EQUAL` become zero."""
        system, baseline = self.system, self.baseline
        if not len(system.corpus):
            return Difference()
        value = system.value - baseline.value
        left_out_N = None
        if system.left_out_N is not None and baseline.left_out_N is not None:
            left_out_N = system.left_out_N - baseline.left_out_N
        drawn_R = system.drawn_R - baseline.drawn_R
        low, high, self.procedure = interval_ends(
            value, len(system.corpus), drawn_R, left_out_N, self.value_N, self.bounds, self._draws.seed
        )
        value, low, high = (0.0 if abs(x) < EQUAL else x for x in (value, low, high))
        return Difference(value, low, high, system.n, p_value(self._swapped_R(), value))

    def _swapped_R(self) -> np.ndarray:
        """Returns the difference in each permutation."""
        one, other = self.system.corpus, self.baseline.corpus
        if isinstance(one, Sums) and isinstance(other, Sums):
            (a, b), moved = self._sides, self._moved()
            return np.asarray(a.of_sums(a.stats.sum(0) + moved) - b.of_sums(b.stats.sum(0) - moved))
        assert isinstance(one, Recounted) and isinstance(other, Recounted)
        slots = range(math.lcm(len(one.slots), len(other.slots)))
        rows = [[*one.slots[slot % len(one.slots)], *other.slots[slot % len(other.slots)]] for slot in slots]
        pooled = replace(one, slots=rows)
        return np.concatenate(
            [
                pooled(np.hstack([1 - swap_RN, swap_RN])) - pooled(np.hstack([swap_RN, 1 - swap_RN]))
                for swap_RN in random_swaps(len(one), self._draws.resamples, self._draws.seed)
            ]
        )


def p_value(drawn_R: np.ndarray, observed: float) -> float:
    """Returns (1 + number of permutations at least as far from zero as ``observed``) / (1 + R). Ties and NaN
    count as at least as far.
    """
    if np.isnan(observed):
        return math.nan
    as_far = int(np.count_nonzero(~(np.abs(drawn_R) < abs(observed) * (1 - 1e-9) - EQUAL)))
    return (1 + as_far) / (1 + len(drawn_R))


def _alike(one: Sums, other: Sums) -> tuple[Sums, Sums]:
    """Returns two systems' scores with statistics of equal shape, so that items can be swapped between them.

    Repeats captions of the system with fewer captions per item, and pads missing columns with zeros.
    """
    if one.stats.shape == other.stats.shape:
        return one, other
    stats = [side.stats if side.stats.ndim == 3 else side.stats[:, None] for side in (one, other)]
    slots, width = math.lcm(*(side.shape[1] for side in stats)), max(side.shape[2] for side in stats)
    stats = [np.tile(side, (1, slots // side.shape[1], 1)) for side in stats]
    stats = [np.pad(side, ((0, 0), (0, 0), (0, width - side.shape[2]))) for side in stats]
    return replace(one, stats=stats[0]), replace(other, stats=stats[1])


def paired_difference(
    value_N: np.ndarray,
    baseline_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    unit_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    bounds: Bounds = UNBOUNDED,
) -> Difference:
    """Returns the mean of value − baseline (see `mean_of`) over the items for which neither is NaN.

    ``bounds`` limit a value, not a difference.
    """
    return paired_means(Draws(resamples, seed), value_N, baseline_N, weight_N, unit_N, bounds).difference()


def paired_means(
    draws: Draws,
    value_N: np.ndarray,
    baseline_N: np.ndarray,
    weight_N: np.ndarray | None,
    unit_N: np.ndarray | None,
    bounds: Bounds,
) -> PairedTest:
    """Returns the paired test of two means. A permutation swaps value − baseline with zero."""
    difference_N = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    system, baseline = (
        mean_estimate(draws, own_N, weight_N, unit_N, bounds) for own_N in (difference_N, 0 * difference_N)
    )
    means = (mean_of(own_N, weight_N, unit_N) for own_N in (value_N, baseline_N))  # not resampled
    ends = bounds_of_difference(bounds, *(mean.score(mean.stats) for mean in means))
    return PairedTest(draws, system, baseline, system.value_N, ends)


def bounds_of_difference(bounds: Bounds, *value_N: np.ndarray | None) -> Bounds:
    """Returns the smallest and largest possible difference between two values within ``bounds`` if the values are
    events.

    Values are events if they are hits and misses, or if most of them are identical. For other values, such as CIDEr,
    returns `UNBOUNDED`, because two captions with the same CIDEr do not show how far apart other captions can be.
    """
    for values in value_N:
        known_N = np.zeros(0) if values is None else values[~np.isnan(values)]
        if not len(known_N) or not (
            np.isin(known_N, bounds).all() or count_unusual(known_N) < min(FEW, len(known_N) / 2)
        ):
            return UNBOUNDED
    return bounds[0] - bounds[1], bounds[1] - bounds[0]
