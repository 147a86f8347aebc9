"""Bootstrap confidence intervals and paired significance tests of metrics.

A metric consists of sufficient statistics, N×C with a row per item, and a score, a function of their sums (`Sums`).
Two standard procedures use them independently, as in sacrebleu, so an interval and its p-value can disagree:

- interval: the paired percentile bootstrap (Efron and Tibshirani 1993; Koehn 2004, EMNLP), or Student's t with the
  jackknife standard error for fewer than 30 units;
- p: two-sided approximate randomization, which swaps the two systems' items (Noreen 1989; Riezler and Maxwell 2005).

Both resample units: items, or clusters of dependent items. All draws are seeded.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95
ALPHA = 0.05  # 1 − LEVEL
EQUAL = 1e-6  # smaller differences count as zero: the COCO tools' BLEU adds 1e-15 to every count
BOOTSTRAP, STUDENT, RARE, SINGLE = "bootstrap", "student-t", "rare-events", "none"  # procedures of intervals
PLACES = 6  # decimals that suffice to print no non-zero difference as zero
# Minimum numbers of units, and of values that differ from the most frequent one, for a percentile bootstrap.
FEW, VERY_FEW = 30, 5
# The 97.5% quantiles of Student's t with 1 to 28 degrees of freedom.
T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
               2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
               2.0518, 2.0484)  # fmt: skip
Bounds = tuple[float, float]  # the minimum and maximum possible value
UNBOUNDED: Bounds = (-math.inf, math.inf)
PERCENT: Bounds = (0.0, 100.0)

_BLOCK_CELLS = 2_000_000  # resampled cells in memory at a time: 16 MB of indices
_NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Sums:
    """A score computed from the summed statistics of N units: ``score(stats.sum(0))``.

    stats: N×C, or N×S×C for S captions per item, over which the score is averaged.
    score: maps sums, with C on the last axis, to scores without that axis.
    n: the number of observations, if it differs from N.
    """

    stats: np.ndarray
    score: Callable[[np.ndarray], np.ndarray]
    bounds: Bounds = UNBOUNDED
    n: int | None = None

    def __len__(self) -> int:
        return len(self.stats)

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """Computes the score with unit weights ``weight_N``, or R scores for weights R×N."""
        return self.of_sums(np.tensordot(weight_N, self.stats, 1))

    def of_sums(self, sums: np.ndarray) -> np.ndarray:
        """Computes the score of each row of sums, R×C or R×S×C."""
        number = self.score(sums)
        return np.asarray(number.mean(-1) if self.stats.ndim == 3 else number)


@dataclass(frozen=True, eq=False)
class Recounted:
    """A score over N items that is not a function of sums: ``build(rows)(weight_N)``, with one row per item.

    grows: whether the score grows with N, like a count of distinct words. Resamples repeat items, so the variance of
    such a score across resamples differs from its variance across new items; disjoint halves are drawn instead.
    more: rows for the items' further captions. The score is averaged over all captions.
    """

    rows: Sequence[Any]
    build: Callable[[list[Any]], Callable[[np.ndarray], float]]
    grows: bool = False
    more: tuple[Sequence[Any], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bounds(self) -> Bounds:
        """Returns the minimum and maximum possible score."""
        return (0.0, math.inf) if self.grows else UNBOUNDED

    @cached_property
    def _functions(self) -> list[Callable[[np.ndarray], float]]:
        return [self.build(list(rows)) for rows in (self.rows, *self.more)]

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """See `Sums.__call__`."""
        if weight_N.ndim == 2:
            return np.array([self(row_N) for row_N in weight_N])
        return np.asarray(np.mean([function(weight_N) for function in self._functions]))


Corpus = Sums | Recounted


@dataclass(frozen=True)
class Measurement:
    """One value per picture (NaN leaves the picture out), a corpus score, or both. If there are both, the corpus score
    is printed.

    ``weight_N``: the number of observations (questions) behind each picture's value; None means one each.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


def merged(corpora: Sequence[Corpus]) -> Corpus:
    """Averages a score over an item's captions, given one corpus of all first captions, one of all second captions, and
    so on.
    """
    first = corpora[0]
    if len(corpora) == 1:
        return first
    if isinstance(first, Sums):
        return replace(first, stats=np.stack([one.stats for one in corpora if isinstance(one, Sums)], axis=1))
    return replace(first, more=tuple(one.rows for one in corpora[1:] if isinstance(one, Recounted)))


def mean_of(
    value_N: np.ndarray,
    weight_N: np.ndarray | None = None,
    unit_N: np.ndarray | None = None,
    bounds: Bounds = UNBOUNDED,
) -> Sums:
    """Returns the mean over units of the values that are not NaN.

    weight_N: the number of observations behind each value.
    unit_N: the unit of each item, if items are dependent. A row of the statistics then stands for a unit, and its score
        is that unit's mean.
    """
    value_N = np.asarray(value_N, dtype=float)
    weight_N = np.ones(len(value_N)) if weight_N is None else np.asarray(weight_N, dtype=float)
    known_N = ~np.isnan(value_N) & (weight_N > 0)
    stats = np.stack([value_N * weight_N, weight_N], axis=1)[known_N]
    n = round(float(stats[:, 1].sum()))
    if unit_N is not None:
        stats = by_unit(stats, unit_N[known_N])
    return Sums(stats, lambda sums: sums[..., 0] / sums[..., 1], bounds, n)


def by_unit(stats: np.ndarray, unit_N: np.ndarray) -> np.ndarray:
    """Sums the items' statistics within each unit."""
    units, row_N = np.unique(unit_N, return_inverse=True)
    sums = np.zeros((len(units), *stats.shape[1:]))
    np.add.at(sums, row_N, stats)
    return sums


# Unit weights, R×N, in blocks of resamples.

Weights = Callable[[int, int, int], Iterator[np.ndarray]]


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields how often each bootstrap resample draws each of n units."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields 1 for the units whose two systems a permutation swaps, 0 for the others."""
    rng = np.random.default_rng([seed, 1])  # a random stream different from the bootstrap's
    for rows in _blocks(resamples, n):
        yield rng.integers(2, size=(rows, n), dtype=np.int8).astype(float)


def disjoint_halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields two disjoint halves of the items; if n is odd, one item is in neither."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        place_RN = np.argsort(rng.random((rows, n)), axis=1)
        yield (place_RN < n // 2).astype(float), (place_RN >= n - n // 2).astype(float)


def _blocks(resamples: int, n: int) -> Iterator[int]:
    rows = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, rows):
        yield min(rows, resamples - start)


@dataclass(eq=False)
class Drawn:
    """Statistics, N×…, and their sums in R resamples or permutations, R×…, which `Draws.run` fills in."""

    stats: np.ndarray
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Draws:
    """Bootstrap resamples and permutations. Request all sums with `ask` first, then call `run` once.

    Statistics with the same number of units share weights, in one matrix product.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.resamples, self.seed = resamples, seed
        self._asked: dict[tuple[Weights, int], list[Drawn]] = defaultdict(list)

    def ask(self, weights: Weights, stats: np.ndarray) -> Drawn:
        """Registers statistics. `run` fills the returned object with their sums, weighted by ``weights``."""
        asked = Drawn(stats)
        if len(stats):
            self._asked[weights, len(stats)].append(asked)
        return asked

    def run(self) -> None:
        """Draws the resamples and computes all requested sums."""
        for (weights, n), asked in self._asked.items():
            parts = [one.stats.reshape(n, -1) for one in asked]
            joined = np.concatenate(parts, axis=1)
            sums = np.concatenate([weight_RN @ joined for weight_RN in weights(n, self.resamples, self.seed)])
            ends = np.cumsum([part.shape[1] for part in parts])
            for one, own in zip(asked, np.split(sums, ends[:-1], axis=1), strict=True):
                one.sums = own.reshape(-1, *one.stats.shape[1:])
        self._asked.clear()


# Intervals and paired tests.


@dataclass(frozen=True, slots=True)
class Interval:
    """A score over ``n`` items with its 95% interval. Unknown fields are NaN (0 for ``n``)."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its 95% interval and its two-sided p-value, which are computed independently of each
    other.

    p_holm: p after Holm's correction over all pairs and metrics, if requested.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    p_holm: float = math.nan

    @property
    def clear(self) -> bool:
        """Returns whether the difference counts as better or worse: p, after correction if any, is below 0.05.

        Tables, headlines and pages all use this rule. Differences below `EQUAL` count as zero.
        """
        return abs(self.value) >= EQUAL and (self.p if math.isnan(self.p_holm) else self.p_holm) < ALPHA

    def turned(self) -> Difference:
        """Returns the difference with the two systems swapped."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)


class Estimate:
    """A system's score with its bootstrap distribution, drawn by ``draws``.

    value_N: the score of each unit alone, if known (for intervals of rare events, see `ends_of`).
    """

    procedure = SINGLE  # procedure of the last interval: BOOTSTRAP, STUDENT or RARE; SINGLE if there is no interval

    def __init__(self, draws: Draws, corpus: Corpus, value_N: np.ndarray | None = None) -> None:
        self.corpus, self.value_N, self._draws = corpus, value_N, draws
        self.value = float(corpus(np.ones(len(corpus)))) if len(corpus) else _NAN
        self._drawn = draws.ask(bootstrap_weights, corpus.stats) if isinstance(corpus, Sums) else None

    @property
    def n(self) -> int:
        """Returns the number of observations."""
        own = self.corpus.n if isinstance(self.corpus, Sums) else None
        return len(self.corpus) if own is None else own

    @cached_property
    def drawn_R(self) -> np.ndarray:
        """Returns the score in each resample."""
        if isinstance(self.corpus, Sums):
            assert self._drawn is not None
            return self.corpus.of_sums(self._drawn.sums)
        if self.corpus.grows:
            return _by_halves(self.corpus, self.value, self._draws)
        blocks = bootstrap_weights(len(self.corpus), self._draws.resamples, self._draws.seed)
        return np.concatenate([self.corpus(weight_RN) for weight_RN in blocks])

    @cached_property
    def left_out_N(self) -> np.ndarray | None:
        """Returns the leave-one-out scores for the jackknife, or None if the bootstrap is used."""
        few = len(self.corpus) < FEW and not (isinstance(self.corpus, Recounted) and self.corpus.grows)
        return self.corpus(1 - np.eye(len(self.corpus))) if few and len(self.corpus) > 1 else None

    def interval(self) -> Interval:
        """Returns the score with its interval, clipped to the score's range."""
        if not len(self.corpus):
            return Interval()
        least, most = bounds = self.corpus.bounds
        low, high, self.procedure = _ends(
            self.value, len(self.corpus), self.drawn_R, self.left_out_N, self.value_N, bounds, self._draws.seed
        )
        return Interval(0.0 + self.value, max(low, least), min(high, most), self.n)


class PairedTest:
    """The difference between two systems' scores over the same units, with interval and p-value."""

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
        low, high, self.procedure = _ends(
            value, len(system.corpus), drawn_R, left_out_N, self.value_N, self.bounds, self._draws.seed
        )
        value, low, high = (0.0 if abs(x) < EQUAL else x for x in (value, low, high))
        return Difference(value, low, high, system.n, p_value(self._swapped_R(), value))

    def _swapped_R(self) -> np.ndarray:
        """Returns the difference in each permutation."""
        one, other = self.system.corpus, self.baseline.corpus
        if isinstance(one, Sums) and isinstance(other, Sums):
            a, b = self._sides
            swapped_R = a.of_sums(a.stats.sum(0) + self._moved.sums)
            return np.asarray(swapped_R - b.of_sums(b.stats.sum(0) - self._moved.sums))
        assert isinstance(one, Recounted) and isinstance(other, Recounted)
        sides = (one.rows, *one.more), (other.rows, *other.more)
        rows = [
            [*sides[0][slot % len(sides[0])], *sides[1][slot % len(sides[1])]]
            for slot in range(math.lcm(*map(len, sides)))
        ]
        pooled = replace(one, rows=rows[0], more=tuple(rows[1:]))
        return np.concatenate(
            [
                pooled(np.concatenate([1 - swap_RN, swap_RN], axis=1))
                - pooled(np.concatenate([swap_RN, 1 - swap_RN], axis=1))
                for swap_RN in random_swaps(len(one), self._draws.resamples, self._draws.seed)
            ]
        )


def p_value(drawn_R: np.ndarray, observed: float) -> float:
    """Returns (1 + number of permutations at least as far from zero as ``observed``) / (1 + R); counts ties and NaN."""
    if np.isnan(observed):
        return _NAN
    as_far = int(np.count_nonzero(~(np.abs(drawn_R) < abs(observed) * (1 - 1e-9) - EQUAL)))
    return (1 + as_far) / (1 + len(drawn_R))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's adjusted p-values, in input order; NaN does not count as a test.

    With p(1) ≤ … ≤ p(m), the adjusted p(i) is max over j ≤ i of min(1, (m − j + 1) · p(j)). The family-wise error rate
    is at most α under any dependence (Holm 1979, Scand. J. Statist. 6, 65-70).
    """
    p_M = np.asarray(p_values, dtype=float)
    order = np.argsort(p_M, kind="stable")[: np.count_nonzero(~np.isnan(p_M))]
    adjusted_M = np.full(len(p_M), _NAN)
    adjusted_M[order] = np.maximum.accumulate(np.minimum(1, p_M[order] * np.arange(len(order), 0, -1)))
    return [float(p) for p in adjusted_M]


def _alike(one: Sums, other: Sums) -> tuple[Sums, Sums]:
    """Returns two systems' scores with statistics of equal shape, so that they can be swapped.

    Repeats captions of the system with fewer captions per item, and pads missing columns with zeros.
    """
    if one.stats.shape == other.stats.shape:
        return one, other
    stats = [side.stats if side.stats.ndim == 3 else side.stats[:, None] for side in (one, other)]
    slots, width = math.lcm(*(side.shape[1] for side in stats)), max(side.shape[2] for side in stats)
    stats = [np.tile(side, (1, slots // side.shape[1], 1)) for side in stats]
    stats = [np.pad(side, ((0, 0), (0, 0), (0, width - side.shape[2]))) for side in stats]
    return replace(one, stats=stats[0]), replace(other, stats=stats[1])


def mean_interval(
    value_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    unit_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Returns the mean (see `mean_of`) of the values that are not NaN, with its interval."""
    draws = Draws(resamples, seed)
    corpus = mean_of(value_N, weight_N, unit_N, bounds)
    estimate = Estimate(draws, corpus, corpus.score(corpus.stats))
    draws.run()
    return estimate.interval()


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
    """Returns the mean of value − baseline (see `mean_of`) over the items where neither is NaN.

    ``bounds`` apply to a value, not to a difference.
    """
    draws = Draws(resamples, seed)
    test = paired_means(draws, value_N, baseline_N, weight_N, unit_N, bounds)
    draws.run()
    return test.difference()


def paired_means(
    draws: Draws,
    value_N: np.ndarray,
    baseline_N: np.ndarray,
    weight_N: np.ndarray | None,
    unit_N: np.ndarray | None,
    bounds: Bounds,
) -> PairedTest:
    """Returns the paired test of two means; a permutation swaps value − baseline with zeros."""
    difference_N = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    sides = [mean_of(own_N, weight_N, unit_N, bounds) for own_N in (difference_N, 0 * difference_N)]
    units = [one.score(one.stats) for one in (mean_of(own_N, weight_N, unit_N) for own_N in (value_N, baseline_N))]
    ends = bounds_of_difference(bounds, *units)
    own = sides[0].score(sides[0].stats)
    return PairedTest(draws, Estimate(draws, sides[0]), Estimate(draws, sides[1]), own, ends)


def bounds_of_difference(bounds: Bounds, *value_N: np.ndarray | None) -> Bounds:
    """Returns the minimum and maximum difference of two values within ``bounds`` if the values are events.

    Values are events if they are hits and misses, or if most of them are identical. For other values, such as CIDEr,
    returns `UNBOUNDED`: two captions with the same CIDEr do not show how far apart others can be.
    """
    for values in value_N:
        known_N = np.zeros(0) if values is None else values[~np.isnan(values)]
        if not len(known_N) or not (np.isin(known_N, bounds).all() or _others(known_N) < min(FEW, len(known_N) / 2)):
            return UNBOUNDED
    return bounds[0] - bounds[1], bounds[1] - bounds[0]


def _others(value_N: np.ndarray) -> int:
    """Counts the values that differ from the most frequent one."""
    return len(value_N) - int(np.unique(value_N, return_counts=True)[1].max())


def ends_of(
    drawn_R: np.ndarray, value_N: np.ndarray | None, bounds: Bounds, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns resampled means of rare events, from which the lower and the upper end of an interval follow.

    Returns None unless most values are identical and fewer than `FEW` differ (for example, captions that repeat words),
    and for a metric without bounds. With so few events, resamples cannot represent values that the n items happened to
    miss: without any event, the bootstrap interval would be [0, 0]. Therefore one more value, with a random weight
    Beta(1, n), stands for what was not observed: the smallest value for the lower end, the largest one for the upper
    end, or the metric's bound if fewer than `VERY_FEW` values differ. For binary events this is the exact interval
    (Clopper and Pearson 1934), for other values the bound of Learned-Miller and Thomas (2019, arXiv:1905.06208).
    """
    value_N = np.zeros(0) if value_N is None else value_N[~np.isnan(value_N)]
    if not len(value_N) or not np.isfinite(bounds).all():
        return None
    n, others = len(value_N), _others(value_N)
    if others >= min(FEW, n / 2):
        return None
    least, most = bounds if others < VERY_FEW else (value_N.min(), value_N.max())
    weight_R = np.random.default_rng([seed, n]).beta(1, n, len(drawn_R))
    rest_R = (1 - weight_R) * drawn_R
    return rest_R + weight_R * least, rest_R + weight_R * most


def _ends(
    value: float,
    n: int,
    drawn_R: np.ndarray,
    left_out_N: np.ndarray | None,
    value_N: np.ndarray | None,
    bounds: Bounds,
    seed: int,
) -> tuple[float, float, str]:
    """Returns the ends of the 95% interval and the procedure: `ends_of` for rare events, Student's t, or bootstrap
    percentiles."""
    rare = ends_of(drawn_R, value_N, bounds, seed)
    if rare is None and left_out_N is not None:
        error = math.sqrt((n - 1) / n * float(np.square(left_out_N - left_out_N.mean()).sum()))
        return value - T_QUANTILES[n - 2] * error, value + T_QUANTILES[n - 2] * error, STUDENT
    if rare is None and n == 1:
        return _NAN, _NAN, SINGLE  # a single unit gives no estimate of the variance
    low_R, high_R = rare or (drawn_R, drawn_R)
    procedure = BOOTSTRAP if rare is None else RARE
    return _quantile(low_R, (1 - LEVEL) / 2), _quantile(high_R, (1 + LEVEL) / 2), procedure


def _quantile(drawn_R: np.ndarray, share: float) -> float:
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # NaN means that the resample's score is 0/0
    return 0.0 + float(np.quantile(drawn_R, share)) if len(drawn_R) else _NAN


def _by_halves(corpus: Recounted, value: float, draws: Draws) -> np.ndarray:
    """Resamples a growing score V: V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)) for random halves.

    The difference between two disjoint halves has twice the variance of V(n/2), for any V. The variance of a count of
    distinct things grows with n like the count (like the expected count for Poisson samples of a power law).
    """
    halves = disjoint_halves(len(corpus), draws.resamples, draws.seed)
    a_R, b_R = (np.concatenate(side) for side in zip(*[(corpus(a), corpus(b)) for a, b in halves], strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    drawn_R: np.ndarray = value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5)
    return drawn_R


class MetricTests:
    """The intervals and paired differences of systems for one metric, drawn by ``draws``.

    bounds: the lowest and highest possible value for a picture.
    unit_N: the unit of each picture, if pictures are dependent; None means that each picture is a unit.
    same: pairs of systems with identical captions, which cannot differ.
    """

    def __init__(
        self,
        draws: Draws,
        measured: Mapping[str, Measurement],
        pairs: Iterable[tuple[str, str]],
        bounds: Bounds = UNBOUNDED,
        unit_N: np.ndarray | None = None,
        same: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._systems: dict[str, Estimate] = {}
        for name, one in measured.items():
            if one.corpus is not None:
                self._systems[name] = Estimate(draws, _of_units(one.corpus, unit_N), one.value_N)
            else:
                corpus = mean_of(_values(one), one.weight_N, unit_N, bounds)
                self._systems[name] = Estimate(draws, corpus, corpus.score(corpus.stats))
        self._pairs: dict[tuple[str, str], PairedTest] = {}
        for a, b in pairs:
            base, system = measured[a], measured[b]
            limits = UNBOUNDED if (a, b) in same else bounds
            if base.corpus is None or system.corpus is None:
                means = _values(system), _values(base), system.weight_N, unit_N, limits
                self._pairs[a, b] = paired_means(draws, *means)
                continue
            values = None
            if base.value_N is not None and system.value_N is not None:
                values = system.value_N - base.value_N
                limits = UNBOUNDED if (a, b) in same else system.corpus.bounds
            limits = bounds_of_difference(limits, system.value_N, base.value_N)
            self._pairs[a, b] = PairedTest(draws, self._systems[b], self._systems[a], values, limits)

    def intervals(self) -> dict[str, Interval]:
        """Returns the intervals by system. Call it after `Draws.run`, like `differences`."""
        return {system: estimate.interval() for system, estimate in self._systems.items()}

    def differences(self) -> dict[tuple[str, str], Difference]:
        """Returns the difference of system b minus system a for each pair."""
        return {pair: test.difference() for pair, test in self._pairs.items()}

    def procedures(self, without: Container[str] = ()) -> list[str]:
        """Returns the interval procedures that were used, sorted; ignores the systems in ``without``."""
        of_systems = {one.procedure for name, one in self._systems.items() if name not in without}
        return sorted((of_systems | {test.procedure for test in self._pairs.values()}) - {SINGLE})


def _of_units(corpus: Corpus, unit_N: np.ndarray | None) -> Corpus:
    """Groups a score by units for resampling. A score that is not a function of sums is resampled by items."""
    if unit_N is None or not isinstance(corpus, Sums):
        return corpus
    return replace(corpus, stats=by_unit(corpus.stats, unit_N), n=len(corpus))


def _values(measured: Measurement) -> np.ndarray:
    assert measured.value_N is not None
    return measured.value_N


# Formatting of differences and p-values.


def places_for(places: int, difference: Iterable[float | None]) -> int:
    """Returns ``places``, or more decimals if a difference's non-zero bound would otherwise be printed as zero."""
    for x in difference:
        while x and places < PLACES and abs(x) >= EQUAL and round(x, places) == 0:
            places += 1
    return places


def format_p(p: float) -> str:
    """Formats a p-value with three decimals: "<0.001" instead of 0, and "<0.050" just below 0.05."""
    if p < 0.001 - 1e-9:
        return "<0.001"
    text = f"{p:.3f}"
    return f"<{text}" if p < ALPHA - 1e-9 and text == "0.050" else text
