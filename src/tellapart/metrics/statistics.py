"""Rank correlations of a metric with people's ratings, and its accuracy on pairs.

N captions with scores and ratings; suffix P: pairs. Written in sums over the levels of the ratings, because ratings
have few levels: 145,000 judgements take milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tellapart.errors import UsageError

# Statistics as functions of item weights, and the weights of bootstrap resamples and permutations.
#
# A *statistic* maps integer weights of N items (how often a resample draws each) to a number. One that is made of sums
# over items is a `SummedStatistic`: its counts per item are computed once, and all resamples are one matrix product.
# One
# that grows with the number of items is a `GrowingStatistic`, resampled by halves.

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


# Many statistics in the same resamples: one pass over the weights serves every metric and system of an evaluation.
#
#     draws = Draws(resamples=1000, seed=0)
#     drawn = [draws.bootstrap(statistic, n) for statistic in statistics]
#     draws.run()
#     drawn[0].values_R
#
# Statistics of equally many items meet the same weights. Those that are made of sums (`SummedStatistic`) have their
# counts side by side, so that each block of weights is one matrix product for all of them.

Combine = Callable[[Sequence[np.ndarray]], np.ndarray]
Weights = Callable[[int, int, int], Iterator[np.ndarray]]


@dataclass(eq=False)
class Drawn:
    """A statistic in each of R resamples, once `Draws.run` has been called."""

    values_R: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(eq=False)
class _Summed:
    """Arrays N×C whose weighted sums R×C, one for each array, ``combine`` makes numbers of."""

    counts: list[np.ndarray]
    combine: Combine
    drawn: Drawn


@dataclass(eq=False)
class _Plain:
    """What takes weights R×N, a block at a time."""

    evaluate: Callable[[np.ndarray], np.ndarray]
    drawn: Drawn
    blocks: list[np.ndarray] = field(default_factory=list)


@dataclass(eq=False)
class _Pass:
    """What is computed from the same weights."""

    summed: list[_Summed] = field(default_factory=list)
    plain: list[_Plain] = field(default_factory=list)


class Draws:
    """Bootstrap resamples and permutations of items, drawn by ``seed``: see the module's text."""

    def __init__(self, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._passes: dict[tuple[Weights, int], _Pass] = {}

    def bootstrap(self, statistic: Statistic, n: int) -> Drawn:
        """A statistic of n items in each bootstrap resample of them; of a growing one see `_by_halves`."""
        if grows(statistic):
            return Drawn(_by_halves(statistic, n, self.resamples, self.seed))
        parts = summed_parts(statistic)
        if parts is None:
            return self._plain(bootstrap_weights, n, lambda weight_RN: evaluate_many(statistic, weight_RN))
        each, scale = parts
        return self._summed(bootstrap_weights, n, [part.counts_NC for part in each], _mean_of(each, scale))

    def swap(self, system: Statistic, baseline: Statistic, n: int, pooled: Callable[[], Statistic]) -> Drawn:
        """The difference of two statistics of n items where each permutation gives an item's two values to the two
        sides at random.

        pooled: makes the statistic of 2n items, the system's first, for statistics that are not made of sums.
        """
        a, b = summed_parts(system), summed_parts(baseline)
        if a is None or b is None:
            return self.swap_pooled(pooled(), n)
        (a_parts, a_scale), (b_parts, b_scale) = a, b
        width = math.lcm(len(a_parts), len(b_parts))  # a side with fewer captions of a picture says them again
        a_parts, b_parts = a_parts * (width // len(a_parts)), b_parts * (width // len(b_parts))
        if any(x.counts_NC.shape != y.counts_NC.shape for x, y in zip(a_parts, b_parts, strict=True)):
            return self.swap_pooled(pooled(), n)  # a picture's captions are one row, and one system has more of them
        a_sums, b_sums = ([part.counts_NC.sum(0) for part in parts] for parts in (a_parts, b_parts))
        a_number, b_number = _mean_of(a_parts, a_scale), _mean_of(b_parts, b_scale)

        def combine(moved: Sequence[np.ndarray]) -> np.ndarray:
            """``moved`` R×C: what swapping takes from the baseline's sums and adds to the system's."""
            return a_number([own + moved_RC for own, moved_RC in zip(a_sums, moved, strict=True)]) - b_number(
                [own - moved_RC for own, moved_RC in zip(b_sums, moved, strict=True)]
            )

        moves = [right.counts_NC - left.counts_NC for left, right in zip(a_parts, b_parts, strict=True)]
        return self._summed(random_swaps, n, moves, combine)

    def swap_pooled(self, pooled: Statistic, n: int) -> Drawn:
        """As `swap`, by the statistic of 2n items, the system's first, under weights of 0 and 1: the plain way."""

        def difference(swap_RN: np.ndarray) -> np.ndarray:
            system_R = evaluate_many(pooled, np.concatenate([1 - swap_RN, swap_RN], axis=1))
            base_R = evaluate_many(pooled, np.concatenate([swap_RN, 1 - swap_RN], axis=1))
            difference_R: np.ndarray = system_R - base_R
            return difference_R

        return self._plain(random_swaps, n, difference)

    def flip(self, difference_N: np.ndarray) -> Drawn:
        """The sum of differences under random signs."""
        total = difference_N.sum()
        return self._summed(
            random_swaps, len(difference_N), [difference_N[:, None]], lambda sums: total - 2.0 * sums[0][:, 0]
        )

    def run(self) -> None:
        """Draw: afterwards all that was asked for has its values."""
        for (weights, n), work in self._passes.items():
            arrays = list({id(counts): counts for one in work.summed for counts in one.counts}.values())
            place = dict(zip(map(id, arrays), np.cumsum([0, *(counts.shape[1] for counts in arrays)]), strict=False))
            joined_NC = np.concatenate(arrays, axis=1) if arrays else np.zeros((n, 0))
            sums = []
            for weight_RN in weights(n, self.resamples, self.seed):
                sums.append(weight_RN @ joined_NC)
                for other in work.plain:
                    other.blocks.append(other.evaluate(weight_RN))
            sums_RC = np.concatenate(sums)
            for one in work.summed:
                starts = [place[id(counts)] for counts in one.counts]
                own = [sums_RC[:, at : at + c.shape[1]] for at, c in zip(starts, one.counts, strict=True)]
                one.drawn.values_R = one.combine(own)
            for other in work.plain:
                other.drawn.values_R = np.concatenate(other.blocks)
        self._passes.clear()

    def _summed(self, weights: Weights, n: int, counts: list[np.ndarray], combine: Combine) -> Drawn:
        task = _Summed(counts, combine, Drawn())
        self._passes.setdefault((weights, n), _Pass()).summed.append(task)
        return task.drawn

    def _plain(self, weights: Weights, n: int, evaluate: Callable[[np.ndarray], np.ndarray]) -> Drawn:
        task = _Plain(evaluate, Drawn())
        self._passes.setdefault((weights, n), _Pass()).plain.append(task)
        return task.drawn


def _mean_of(parts: Sequence[SummedStatistic], scale: float) -> Combine:
    """The numbers of the parts' sums, their mean, times a scale."""

    def combine(sums: Sequence[np.ndarray]) -> np.ndarray:
        numbers = [part.number(sums_RC) for part, sums_RC in zip(parts, sums, strict=True)]
        mean_R: np.ndarray = scale * np.mean(numbers, axis=0)
        return mean_R

    return combine


def _by_halves(statistic: Statistic, n: int, resamples: int, seed: int) -> np.ndarray:
    """Draws of a `GrowingStatistic` V: V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)) over random halves.

    The difference of two disjoint halves has twice the variance of V(n/2), whatever V is, and the variance of a count
    of distinct things grows with n as the count does (as the expected count does for Poisson samples of a power law).
    """
    value = statistic(np.ones(n))
    halves = [
        (evaluate_many(statistic, a_RN), evaluate_many(statistic, b_RN))
        for a_RN, b_RN in disjoint_halves(n, resamples, seed)
    ]
    a_R, b_R = (np.concatenate(side) for side in zip(*halves, strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    drawn_R: np.ndarray = value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5)
    return drawn_R


# Intervals and paired tests for what evaluation prints: the bootstrap and a permutation test.
#
# One value per item in, NaN where an item abstains (it is left out, and ``n`` says how many count).
# Corpus numbers that are no mean (vocabulary, BLEU) come as a *statistic* (`tellapart.metrics.statistics`).
# Everything is seeded, so a table can be reproduced.

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

    Of a `GrowingStatistic` see `tellapart.metrics.statistics`.
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
        draws,
        paired_values(value_N, baseline_N),
        weight_N,
        paired=True,
        bounds=bounds_of_difference(bounds, value_N, baseline_N),
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
    bounds = bounds_of_difference(bounds_of(system.statistic), system.value_N, baseline.value_N)
    low_R, high_R = ends_of(drawn_R, difference_N, bounds, system.seed)
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


def bounds_of_difference(bounds: Bounds, *value_N: np.ndarray | None) -> Bounds:
    """Returns the least and the greatest difference of two values within ``bounds``, where these are of events.

    Events are hits and misses, or values most of which are one and the same. Of others, such as CIDEr's, it is
    `UNBOUNDED`: that two captions have one CIDEr says nothing of how far others could be apart on its scale.
    """
    for values in value_N:
        known_N = np.zeros(0) if values is None else values[~np.isnan(values)]
        if not len(known_N) or not (np.isin(known_N, bounds).all() or _mostly_one(known_N)):
            return UNBOUNDED
    return bounds[0] - bounds[1], bounds[1] - bounds[0]


def _mostly_one(value_N: np.ndarray) -> bool:
    """Returns whether most values are one and the same, and fewer than `FEW` are others."""
    n = len(value_N)
    return bool(n - np.unique(value_N, return_counts=True)[1].max() < min(FEW, n / 2))


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


_NONE = float("nan")


def kendall_tau_b(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-b, -1..1: (C - D) / sqrt of the pairs untied in scores times those untied in ratings.

    NaN where one side has a single value.
    """
    total = _pairs(len(score_N))
    untied = float(total - _tied(score_N)) * float(total - _tied(rating_N))
    return _balance(score_N, rating_N) / untied**0.5 if untied else _NONE


def kendall_tau_c(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Kendall's tau-c (Stuart 1953), -1..1: 2 (C - D) / (N² (m - 1) / m), m the smaller number of distinct values.

    What papers print for Flickr8k-Expert and Composite. NaN where one side has a single value.
    """
    smaller = min(len(np.unique(score_N)), len(np.unique(rating_N)))
    if smaller < 2:
        return _NONE
    return 2 * _balance(score_N, rating_N) / (len(score_N) ** 2 * (smaller - 1) / smaller)


def spearman(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Spearman's rho, -1..1: Pearson's correlation of the ranks, equal values sharing their mean rank."""
    a_N, b_N = (rank_N - rank_N.mean() for rank_N in (_ranks(score_N), _ranks(rating_N)))
    norm = float(np.sqrt((a_N @ a_N) * (b_N @ b_N)))
    return float(a_N @ b_N) / norm if norm else _NONE


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray) -> float:
    """The share of pairs, 0..1, in which the caption that people prefer has the higher score; a tie counts half."""
    if not len(better_P):
        return _NONE
    return float(np.mean((better_P > worse_P) + 0.5 * (better_P == worse_P)))


def _balance(score_N: np.ndarray, rating_N: np.ndarray) -> int:
    """Concordant minus discordant pairs."""
    lower, balance = np.zeros(0), 0
    for level in np.unique(rating_N):
        here_M = score_N[rating_N == level]
        below = np.searchsorted(lower, here_M, "left").sum()
        above = (len(lower) - np.searchsorted(lower, here_M, "right")).sum()
        balance += int(below) - int(above)
        lower = np.sort(np.concatenate([lower, here_M]), kind="stable")
    return balance


def _pairs(n: int) -> int:
    return n * (n - 1) // 2


def _tied(value_N: np.ndarray) -> int:
    return sum(_pairs(int(count)) for count in np.unique(value_N, return_counts=True)[1])


def _ranks(value_N: np.ndarray) -> np.ndarray:
    _, place_N, count_U = np.unique(value_N, return_inverse=True, return_counts=True)
    last_U = np.cumsum(count_U)
    mean_U: np.ndarray = last_U - (count_U - 1) / 2
    return mean_U[place_N]


# What a metric reads and what it gives back. Captions come as slots: every picture's first one, every second one, …
#
# A metric of one caption is measured slot by slot; `merge_slots` makes one measurement of a system's slots.

HUMAN, CHANCE = "human", "chance"  # systems that are yardsticks: people, and a blind guess
HUMAN_CHOICES = ("first", "random", "mean")


@dataclass(eq=False)
class Slot:
    """One caption for each picture, in the order of the ids, and the references of each."""

    captions: list[str]
    references: list[list[str]] | None = None
    repeats: np.ndarray | None = None  # where this slot repeats a caption of a picture with fewer than others


@dataclass(frozen=True)
class Corpus:
    """A number of all captions together: one row of material per picture, and what makes a statistic of rows."""

    rows: list[Any]
    build: Callable[[list[Any]], Statistic]


@dataclass(frozen=True)
class Measurement:
    """One value per picture (NaN abstains), or a corpus statistic, or both; the corpus then is what is printed.

    ``weight_N``: how many observations (questions) a picture's value is the mean of; None: one each.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


def system_slots(lists: list[list[str]], all_references: list[list[str]] | None) -> list[Slot]:
    """A system's captions as slots: every picture's first ones, every picture's second ones, and so on.

    A picture with fewer captions than others says them again; that counts for corpus numbers of one caption only.
    """
    width = max(map(len, lists))
    return [
        Slot(
            [texts[number % len(texts)] for texts in lists],
            all_references,
            np.array([number >= len(texts) for texts in lists]) if width > 1 else None,
        )
        for number in range(width)
    ]


def caption_lists(slots: Sequence[Slot]) -> list[list[str]]:
    """All captions of each picture, those that a slot only says again left out."""
    kept = [np.zeros(len(slot.captions), bool) if slot.repeats is None else slot.repeats for slot in slots]
    return [
        [slot.captions[number] for slot, repeats_N in zip(slots, kept, strict=True) if not repeats_N[number]]
        for number in range(len(slots[0].captions))
    ]


def human_slots(choice: str, all_references: list[list[str]] | None, seed: int) -> list[Slot]:
    """People's captions as a system, each scored against the picture's other references."""
    if choice not in HUMAN_CHOICES:
        raise UsageError(f"human is '{choice}'; expected one of {', '.join(HUMAN_CHOICES)}")
    if all_references is None:
        raise UsageError("to score people, references are needed; add --references FILE, or --data with references")
    if choice == "first":
        return [_human_slot(all_references, [0] * len(all_references), 0)]
    if choice == "random":
        rng = np.random.default_rng(seed)
        return [_human_slot(all_references, [int(rng.integers(len(texts))) for texts in all_references], 0)]
    return [
        _human_slot(all_references, [slot % len(texts) for texts in all_references], slot)
        for slot in range(max(map(len, all_references)))
    ]


def _human_slot(all_references: list[list[str]], picks: list[int], slot: int) -> Slot:
    captions = [texts[pick] for texts, pick in zip(all_references, picks, strict=True)]
    others = [texts[:pick] + texts[pick + 1 :] for texts, pick in zip(all_references, picks, strict=True)]
    return Slot(captions, others, np.array([slot >= len(texts) for texts in all_references]))


def merge_slots(measured_S: Sequence[Measurement], slots: Sequence[Slot]) -> Measurement:
    """A system's measurement: that of its captions, or the mean over several captions of a picture."""
    values = [measured.value_N for measured in measured_S if measured.value_N is not None]
    value_N = values[0] if values else None
    if len(values) > 1:
        # A slot that repeats a reference (a picture with fewer than the others) counts for corpus numbers only.
        value_SN = np.array([_unless(slot.repeats, own_N) for slot, own_N in zip(slots, values, strict=True)])
        count_N = np.count_nonzero(~np.isnan(value_SN), axis=0)
        value_N = np.where(count_N > 0, np.nansum(value_SN, axis=0) / np.maximum(count_N, 1), np.nan)
    corpora = [measured.corpus for measured in measured_S if measured.corpus is not None]
    if not corpora:
        return Measurement(value_N, weight_N=measured_S[0].weight_N)
    rows = list(zip(*[corpus.rows for corpus in corpora], strict=True))
    return Measurement(value_N, Corpus(rows, partial(_slot_mean, corpora[0].build)))


def _unless(repeats_N: np.ndarray | None, value_N: np.ndarray) -> np.ndarray:
    return value_N if repeats_N is None else np.where(repeats_N, np.nan, value_N)


def _slot_mean(build: Callable[[list[Any]], Statistic], rows: list[tuple[Any, ...]]) -> Statistic:
    statistics = [build(list(column)) for column in zip(*rows, strict=True)]
    return statistics[0] if len(statistics) == 1 else MeanStatistic(statistics)
