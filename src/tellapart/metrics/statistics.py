"""Bootstrap intervals and paired tests of metrics.

A metric is sufficient statistics and a score: N×C numbers, a row for each item, and a function of their sums (`Sums`).
Two standard procedures read them, each on its own, as in sacrebleu; their results are not adjusted to each other:

- the interval: the paired percentile bootstrap (Efron and Tibshirani 1993; Koehn 2004, EMNLP); of fewer than 30 units
  Student's t with the jackknife's standard error;
- p: two-sided approximate randomisation, which swaps the two systems' items (Noreen 1989; Riezler and Maxwell 2005).

Both draw units: items, or clusters of items that depend on each other. Everything is drawn by a seed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95
ALPHA = 0.05  # 1 − LEVEL
EQUAL = 1e-6  # differences below are equal: the COCO tools' BLEU adds 1e-15 to every count
PLACES = 6  # decimals with which no difference is printed as a zero that it is not
FEW, VERY_FEW = 30, 5  # units, or values other than the usual one, below which the percentile bootstrap is not used
# The 97.5 % quantiles of Student's t with 1 to 28 degrees of freedom.
T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
               2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
               2.0518, 2.0484)  # fmt: skip
Bounds = tuple[float, float]  # the least and the greatest value that there can be
UNBOUNDED: Bounds = (-math.inf, math.inf)
PERCENT: Bounds = (0.0, 100.0)

_BLOCK_CELLS = 2_000_000  # resampled cells held at a time: 16 MB of indices
_NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Sums:
    """A number that the summed statistics of N units give: ``score(stats.sum(0))``.

    stats: N×C, or N×S×C of S captions per item; the number is then the mean over them. score: from sums, C on the last
    axis, to numbers without that axis. n: the number of observations, where it is not N.
    """

    stats: np.ndarray
    score: Callable[[np.ndarray], np.ndarray]
    bounds: Bounds = UNBOUNDED
    n: int | None = None

    def __len__(self) -> int:
        return len(self.stats)

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """Returns the number where units count ``weight_N`` times, or R numbers of weights R×N."""
        return self.of_sums(np.tensordot(weight_N, self.stats, 1))

    def of_sums(self, sums: np.ndarray) -> np.ndarray:
        """Returns the number of each row of sums, R×C or R×S×C."""
        number = self.score(sums)
        return np.asarray(number.mean(-1) if self.stats.ndim == 3 else number)


@dataclass(frozen=True, eq=False)
class Recounted:
    """A number of N items that is not made of sums: ``build(rows)(weight_N)``, where a row is what an item contributes.

    grows: the number grows with N, as a count of distinct words does. A resample repeats items, so that such a number
    varies otherwise there than in new items; it is drawn from halves of the items, which are new to each other. more:
    the rows of an item's further captions; the number is then the mean over them.
    """

    rows: Sequence[Any]
    build: Callable[[list[Any]], Callable[[np.ndarray], float]]
    grows: bool = False
    more: tuple[Sequence[Any], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bounds(self) -> Bounds:
        """The least and the greatest number that there can be."""
        return (0.0, math.inf) if self.grows else UNBOUNDED

    @cached_property
    def _functions(self) -> list[Callable[[np.ndarray], float]]:
        return [self.build(list(rows)) for rows in (self.rows, *self.more)]

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """As `Sums.__call__`."""
        if weight_N.ndim == 2:
            return np.array([self(row_N) for row_N in weight_N])
        return np.asarray(np.mean([function(weight_N) for function in self._functions]))


Corpus = Sums | Recounted


@dataclass(frozen=True)
class Measurement:
    """One value per picture (NaN abstains), or a corpus number, or both; the corpus number then is what is printed.

    ``weight_N``: how many observations (questions) a picture's value is the mean of; None: one each.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


def merged(corpora: Sequence[Corpus]) -> Corpus:
    """Returns the mean of a number over the captions of each item: one corpus for the first captions, and so on."""
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
    """Returns the mean of the values that are not NaN, over units.

    ``weight_N``: how many observations each value is the mean of. ``unit_N``: the unit of each item, where items are
    not independent. A row of the statistics, under its own score, is the mean of that unit.
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
    """Returns the sums of items' statistics over the items of each unit."""
    units, row_N = np.unique(unit_N, return_inverse=True)
    sums = np.zeros((len(units), *stats.shape[1:]))
    np.add.at(sums, row_N, stats)
    return sums


# Weights of units, R×N, in blocks of resamples.

Weights = Callable[[int, int, int], Iterator[np.ndarray]]


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields how often each resample draws each of n units."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields 1 where a unit swaps its two systems in a permutation, else 0."""
    rng = np.random.default_rng([seed, 1])  # other draws than the bootstrap's
    for rows in _blocks(resamples, n):
        yield rng.integers(2, size=(rows, n), dtype=np.int8).astype(float)


def disjoint_halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields two disjoint halves of the items; of an odd number one item is in neither."""
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
    """Statistics, N×…, and their sums in each resample, R×…, which `Draws.run` fills in."""

    stats: np.ndarray
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Draws:
    """Bootstrap resamples and permutations. Ask for all sums first, then `run` once.

    Statistics of equally many units meet the same weights, in one matrix product.
    """

    def __init__(self, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.resamples, self.seed = resamples, seed
        self._asked: dict[tuple[Weights, int], list[Drawn]] = defaultdict(list)

    def ask(self, weights: Weights, stats: np.ndarray) -> Drawn:
        """Returns an object that will hold the statistics' sums under ``weights``."""
        asked = Drawn(stats)
        if len(stats):
            self._asked[weights, len(stats)].append(asked)
        return asked

    def run(self) -> None:
        """Draws; afterwards all that was asked for has its sums."""
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
    """A number with its 95 % interval; ``n`` items count in it. NaN, and 0 of n: not known."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its 95 % interval and its two-sided p-value, which are computed independently.

    p_holm: p after Holm's correction over all pairs and metrics, where that was asked for.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    p_holm: float = math.nan

    @property
    def clear(self) -> bool:
        """True where the difference counts as better or worse: p, corrected if it was, is below 0.05.

        This is the one rule of tables, headlines and pages. Differences below `EQUAL` are none.
        """
        return abs(self.value) >= EQUAL and (self.p if math.isnan(self.p_holm) else self.p_holm) < ALPHA

    def turned(self) -> Difference:
        """Returns the difference of the two systems the other way round."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)


class Estimate:
    """A system's number with its bootstrap distribution, to be drawn by ``draws``.

    value_N: the number of each unit alone, where that is known (for intervals of rare events, `ends_of`).
    """

    def __init__(self, draws: Draws, corpus: Corpus, value_N: np.ndarray | None = None) -> None:
        self.corpus, self.value_N, self._draws = corpus, value_N, draws
        self.value = float(corpus(np.ones(len(corpus)))) if len(corpus) else _NAN
        self._drawn = draws.ask(bootstrap_weights, corpus.stats) if isinstance(corpus, Sums) else None

    @property
    def n(self) -> int:
        """The number of observations."""
        own = self.corpus.n if isinstance(self.corpus, Sums) else None
        return len(self.corpus) if own is None else own

    @cached_property
    def drawn_R(self) -> np.ndarray:
        """The number in each resample."""
        if isinstance(self.corpus, Sums):
            assert self._drawn is not None
            return self.corpus.of_sums(self._drawn.sums)
        if self.corpus.grows:
            return _by_halves(self.corpus, self.value, self._draws)
        blocks = bootstrap_weights(len(self.corpus), self._draws.resamples, self._draws.seed)
        return np.concatenate([self.corpus(weight_RN) for weight_RN in blocks])

    @cached_property
    def left_out_N(self) -> np.ndarray | None:
        """The number without each of the units, for the jackknife; None where the bootstrap is used."""
        few = len(self.corpus) < FEW and not (isinstance(self.corpus, Recounted) and self.corpus.grows)
        return self.corpus(1 - np.eye(len(self.corpus))) if few and len(self.corpus) > 1 else None

    def interval(self) -> Interval:
        """Returns the number with its interval, which ends where the number's range does."""
        if not len(self.corpus):
            return Interval()
        least, most = bounds = self.corpus.bounds
        low, high = _ends(
            self.value, len(self.corpus), self.drawn_R, self.left_out_N, self.value_N, bounds, self._draws.seed
        )
        return Interval(0.0 + self.value, max(low, least), min(high, most), self.n)


class PairedTest:
    """The difference of two systems' numbers over the same units, with its interval and its p-value."""

    def __init__(
        self, draws: Draws, system: Estimate, baseline: Estimate, value_N: np.ndarray | None, bounds: Bounds
    ) -> None:
        self.system, self.baseline, self.value_N, self.bounds, self._draws = system, baseline, value_N, bounds, draws
        if isinstance(system.corpus, Sums) and isinstance(baseline.corpus, Sums):
            self._sides = _alike(system.corpus, baseline.corpus)
            self._moved = draws.ask(random_swaps, self._sides[1].stats - self._sides[0].stats)

    def difference(self) -> Difference:
        """Returns system minus baseline; what is below `EQUAL` is zero."""
        system, baseline = self.system, self.baseline
        if not len(system.corpus):
            return Difference()
        value = system.value - baseline.value
        left_out_N = None
        if system.left_out_N is not None and baseline.left_out_N is not None:
            left_out_N = system.left_out_N - baseline.left_out_N
        drawn_R = system.drawn_R - baseline.drawn_R
        low, high = _ends(value, len(system.corpus), drawn_R, left_out_N, self.value_N, self.bounds, self._draws.seed)
        value, low, high = (0.0 if abs(x) < EQUAL else x for x in (value, low, high))
        return Difference(value, low, high, system.n, p_value(self._swapped_R(), value))

    def _swapped_R(self) -> np.ndarray:
        """The difference in each permutation."""
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
    """Returns (1 + number of permutations at least as far from zero as ``observed``) / (1 + R); ties and NaN count."""
    if np.isnan(observed):
        return _NAN
    as_far = int(np.count_nonzero(~(np.abs(drawn_R) < abs(observed) * (1 - 1e-9) - EQUAL)))
    return (1 + as_far) / (1 + len(drawn_R))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns Holm's adjusted p-values, in the order given; NaN is no test.

    With p(1) ≤ … ≤ p(m): the adjusted p(i) is max over j ≤ i of min(1, (m − j + 1) · p(j)). The family-wise error is at
    most α whatever the dependence (Holm 1979, Scand. J. Statist. 6, 65-70).
    """
    p_M = np.asarray(p_values, dtype=float)
    order = np.argsort(p_M, kind="stable")[: np.count_nonzero(~np.isnan(p_M))]
    adjusted_M = np.full(len(p_M), _NAN)
    adjusted_M[order] = np.maximum.accumulate(np.minimum(1, p_M[order] * np.arange(len(order), 0, -1)))
    return [float(p) for p in adjusted_M]


def _alike(one: Sums, other: Sums) -> tuple[Sums, Sums]:
    """Two systems' numbers with statistics of one shape, which may be swapped.

    A system with fewer captions of an item repeats them; one with fewer columns has zeros there.
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
    """Returns the mean of the values that are not NaN (see `mean_of`) with its interval."""
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
    """Returns the mean of value − baseline over the items where neither is NaN; see `mean_of`.

    ``bounds`` are those of a value, not of a difference.
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
    """Returns the paired test of two means: value − baseline, which a permutation swaps with zeros."""
    difference_N = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    sides = [mean_of(own_N, weight_N, unit_N, bounds) for own_N in (difference_N, 0 * difference_N)]
    units = [one.score(one.stats) for one in (mean_of(own_N, weight_N, unit_N) for own_N in (value_N, baseline_N))]
    ends = bounds_of_difference(bounds, *units)
    own = sides[0].score(sides[0].stats)
    return PairedTest(draws, Estimate(draws, sides[0]), Estimate(draws, sides[1]), own, ends)


def bounds_of_difference(bounds: Bounds, *value_N: np.ndarray | None) -> Bounds:
    """Returns the least and the greatest difference of two values within ``bounds``, where these are of events.

    Events are hits and misses, or values most of which are one and the same. Of others, such as CIDEr's, it is
    `UNBOUNDED`: that two captions have one CIDEr says nothing of how far others could be apart on its scale.
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
    """Returns resampled means of rare events, from which the lower and the upper end of an interval are read.

    None unless most values are one and the same and fewer than `FEW` are others, such as captions that repeat words:
    resamples then know nothing of what n items happened not to show, and an interval of no events is [0, 0]. One more
    value with a random weight, Beta(1, n), stands for the unseen: the least one for the lower end, the greatest one
    for the upper; of fewer than `VERY_FEW` others that is the metric's bound. For events that happen or do not this is
    the exact interval (Clopper and Pearson 1934), for other values the bound of Learned-Miller and Thomas (2019,
    arXiv:1905.06208). None for a metric without bounds.
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
) -> tuple[float, float]:
    """The ends of the 95 % interval: of rare events (`ends_of`), by Student's t, or the bootstrap's percentiles."""
    rare = ends_of(drawn_R, value_N, bounds, seed)
    if rare is None and left_out_N is not None:
        error = math.sqrt((n - 1) / n * float(np.square(left_out_N - left_out_N.mean()).sum()))
        return value - T_QUANTILES[n - 2] * error, value + T_QUANTILES[n - 2] * error
    if rare is None and n == 1:
        return _NAN, _NAN  # one unit does not say how units vary
    low_R, high_R = rare or (drawn_R, drawn_R)
    return _quantile(low_R, (1 - LEVEL) / 2), _quantile(high_R, (1 + LEVEL) / 2)


def _quantile(drawn_R: np.ndarray, share: float) -> float:
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # NaN: a resample in which the number is 0 of 0
    return 0.0 + float(np.quantile(drawn_R, share)) if len(drawn_R) else _NAN


def _by_halves(corpus: Recounted, value: float, draws: Draws) -> np.ndarray:
    """Draws a number V that grows: V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)) over random halves.

    The difference of two disjoint halves has twice the variance of V(n/2), whatever V is, and the variance of a count
    of distinct things grows with n as the count does (as the expected count does for Poisson samples of a power law).
    """
    halves = disjoint_halves(len(corpus), draws.resamples, draws.seed)
    a_R, b_R = (np.concatenate(side) for side in zip(*[(corpus(a), corpus(b)) for a, b in halves], strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    drawn_R: np.ndarray = value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5)
    return drawn_R


class MetricTests:
    """The intervals of one metric's systems and their paired differences, to be drawn by ``draws``.

    bounds: the least and the greatest value of a picture. unit_N: the unit that each picture belongs to, where pictures
    are not independent; None: each is a unit. same: pairs of systems with the same captions, which cannot differ.
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
        """Returns them by system; call it after `Draws.run`, as `differences`."""
        return {system: estimate.interval() for system, estimate in self._systems.items()}

    def differences(self) -> dict[tuple[str, str], Difference]:
        """Returns system b minus system a, by pair."""
        return {pair: test.difference() for pair, test in self._pairs.items()}


def _of_units(corpus: Corpus, unit_N: np.ndarray | None) -> Corpus:
    """Resamples a number by units; a number that is not made of sums is resampled by items."""
    if unit_N is None or not isinstance(corpus, Sums):
        return corpus
    return replace(corpus, stats=by_unit(corpus.stats, unit_N), n=len(corpus))


def _values(measured: Measurement) -> np.ndarray:
    assert measured.value_N is not None
    return measured.value_N


# Differences and p-values as text.


def places_for(places: int, difference: Iterable[float | None]) -> int:
    """Returns ``places`` decimals, or as many more as show no bound of a difference as a zero that it is not."""
    for x in difference:
        while x and places < PLACES and abs(x) >= EQUAL and round(x, places) == 0:
            places += 1
    return places


def format_p(p: float) -> str:
    """Formats a p-value with three digits: below a thousandth "<0.001", never 0; just below 0.05 "<0.050"."""
    if p < 0.001 - 1e-9:
        return "<0.001"
    text = f"{p:.3f}"
    return f"<{text}" if p < ALPHA - 1e-9 and text == "0.050" else text
