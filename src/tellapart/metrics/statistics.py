"""Measurements of N items, with bootstrap intervals and paired tests.

A metric is sufficient statistics and a score: N×C numbers, a row for each item, and a function of their sums (`Sums`).
A resample is a row of weights, so one matrix product of weights R×N with the statistics of all metrics and systems side
by side resamples all of them (`Draws`). A number that no sums give, such as a count of distinct words, is `Recounted`.
Everything is drawn by a seed, so that a table can be reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tellapart.errors import UsageError

RESAMPLES = 1000
LEVEL = 0.95
ALPHA = 0.05  # 1 − LEVEL
EQUAL = 1e-6  # differences below are equal: the COCO tools' BLEU adds 1e-15 to every count
PLACES = 6  # decimals with which no difference is printed as a zero that it is not
FEW, VERY_FEW = 30, 5  # values other than the usual one, below which a resample may have none of them
Bounds = tuple[float, float]  # the least and the greatest value that there can be
UNBOUNDED: Bounds = (-math.inf, math.inf)
PERCENT: Bounds = (0.0, 100.0)

_BLOCK_CELLS = 2_000_000  # resampled cells held at a time: 16 MB of indices
_KEPT_CELLS = 10_000_000  # drawn cells kept from one metric to the next: 40 MB
_NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Sums:
    """A number of N items that their summed statistics give: ``score(stats_NC.sum(0))``.

    score: from sums, C on the last axis, to numbers without that axis. more: the statistics of a picture's further
    captions, where there are several; the number is then the mean over them.
    """

    stats_NC: np.ndarray
    score: Callable[[np.ndarray], np.ndarray]
    bounds: Bounds = UNBOUNDED
    more: tuple[np.ndarray, ...] = ()

    def __len__(self) -> int:
        return len(self.stats_NC)

    @property
    def slots(self) -> tuple[np.ndarray, ...]:
        """The statistics of first captions, of second captions, and so on."""
        return (self.stats_NC, *self.more)

    def of_slots(self, slots: Sequence[Any]) -> Sums:
        """Returns the same number of other statistics."""
        return replace(self, stats_NC=slots[0], more=tuple(slots[1:]))

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """Returns the number where items count ``weight_N`` times, or R numbers of weights R×N."""
        return self.of_sums([weight_N @ stats_NC for stats_NC in self.slots])

    def of_sums(self, sums: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the mean score of the sums, …×C each, of the slots."""
        mean: np.ndarray = np.mean([self.score(sums_RC) for sums_RC in sums], axis=0)
        return mean


@dataclass(frozen=True, eq=False)
class Recounted:
    """A number of N items that is not made of sums: ``build(rows)(weight_N)``, where a row is what an item contributes.

    grows: the number grows with N, as a count of distinct words does. A resample repeats items, so that such a number
    varies otherwise there than in new items; it is drawn from halves of the items, which are new to each other. more:
    as of `Sums`.
    """

    rows: Sequence[Any]
    build: Callable[[list[Any]], Callable[[np.ndarray], float]]
    grows: bool = False
    more: tuple[Sequence[Any], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def slots(self) -> tuple[Sequence[Any], ...]:
        """The rows of first captions, of second captions, and so on."""
        return (self.rows, *self.more)

    def of_slots(self, slots: Sequence[Any]) -> Recounted:
        """Returns the same number of other rows."""
        return replace(self, rows=slots[0], more=tuple(slots[1:]))

    @property
    def bounds(self) -> Bounds:
        """The least and the greatest number that there can be."""
        return (0.0, math.inf) if self.grows else UNBOUNDED

    @cached_property
    def _functions(self) -> list[Callable[[np.ndarray], float]]:
        return [self.build(list(rows)) for rows in self.slots]

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """As `Sums.__call__`."""
        if weight_N.ndim == 2:
            return np.array([self(row_N) for row_N in weight_N])
        return np.asarray(np.mean([function(weight_N) for function in self._functions]))


Corpus = Sums | Recounted


# Weights of items, R×N, in blocks of resamples.

Weights = Callable[[int, int, int], Iterator[np.ndarray]]


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields how often each resample draws each of n items."""
    blocks = _kept_counts if resamples * n <= _KEPT_CELLS else _counts
    return (count_RN.astype(float) for count_RN in blocks(n, resamples, seed))


@lru_cache(maxsize=2)
def _kept_counts(n: int, resamples: int, seed: int) -> list[np.ndarray]:
    return list(_counts(n, resamples, seed))


def _counts(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        item_RN = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(item_RN.ravel(), minlength=rows * n).reshape(rows, n).astype(np.int32)


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields 1 where an item swaps its two systems in a permutation, else 0."""
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
    """Statistics whose sums in each resample, R×C, `Draws.run` fills in."""

    stats_NC: np.ndarray
    made_of: tuple[np.ndarray, ...]
    sums_RC: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))


class Draws:
    """Bootstrap resamples and permutations of items. Ask for all sums first, then `run` once.

    Statistics of equally many items meet the same weights, in one matrix product.
    """

    def __init__(self, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._asked: dict[tuple[Weights, int], dict[Hashable, Drawn]] = {}

    def bootstrap(self, stats_NC: np.ndarray) -> Drawn:
        """Asks for the sums in bootstrap resamples; of the same array they are computed once."""
        return self._ask(bootstrap_weights, stats_NC, stats_NC)

    def swap(self, system_NC: np.ndarray, baseline_NC: np.ndarray) -> Drawn:
        """Asks for what a permutation, which swaps items' two systems at random, adds to the system's sums."""
        return self._ask(random_swaps, baseline_NC - system_NC, system_NC, baseline_NC)

    def run(self) -> None:
        """Draws; afterwards all that was asked for has its sums."""
        for (weights, n), asked in self._asked.items():
            joined_NC = np.concatenate([one.stats_NC for one in asked.values()], axis=1)
            sums_RC = np.concatenate([weight_RN @ joined_NC for weight_RN in weights(n, self.resamples, self.seed)])
            at = 0
            for one in asked.values():
                one.sums_RC = sums_RC[:, at : at + one.stats_NC.shape[1]]
                at += one.stats_NC.shape[1]
        self._asked.clear()

    def _ask(self, weights: Weights, stats_NC: np.ndarray, *made_of: np.ndarray) -> Drawn:
        asked = self._asked.setdefault((weights, len(stats_NC)), {})
        return asked.setdefault(tuple(map(id, made_of)), Drawn(stats_NC, made_of))


# Intervals and paired tests.


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its bootstrap percentile interval; ``n`` items count in it. NaN, and 0 of n: not known."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference with its interval and its two-sided p-value: p < 0.05 exactly where the 95 % interval leaves
    zero out (`_difference`)."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan

    @property
    def clear(self) -> bool:
        """Returns `is_clear` of it."""
        return is_clear(self.value, self.low, self.high, self.p)


def is_clear(value: float, low: float, high: float, p: float = math.nan) -> bool:
    """Returns True for a difference that is more than chance: the one rule of tables, headlines and pages.

    The 95 % interval leaves zero out, p is below 0.05, and the difference is at least `EQUAL`. The three agree in
    results of this version, and may not in older ones.
    """
    return abs(value) >= EQUAL and (low > 0 or high < 0) and (math.isnan(p) or p < ALPHA)


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
        self._draws, self._bounds = draws, bounds
        self._kept_N, self._weight_N = kept_N, weight_N = _kept(value_N, weight_N)
        if not len(kept_N):
            return
        self._sum_N = kept_N if weight_N is None else kept_N * weight_N
        self._constant = bool((kept_N == kept_N[0]).all())
        if not self._constant:
            columns = [self._sum_N] if weight_N is None else [self._sum_N, weight_N]
            self._drawn = draws.bootstrap(np.stack(columns, axis=1))
        if paired:
            self._flipped = draws.swap(self._sum_N[:, None], -self._sum_N[:, None])

    def interval(self, level: float = LEVEL) -> Interval:
        """Returns the mean with its percentile bootstrap interval."""
        kept_N, weight_N = self._kept_N, self._weight_N
        if not len(kept_N):
            return Interval(_NAN, _NAN, _NAN, 0)
        n = len(kept_N) if weight_N is None else round(float(weight_N.sum()))
        # The mean of equal numbers is that number, to the last bit: a constant has an interval of width zero.
        value = 0.0 + float(kept_N[0] if self._constant else np.average(kept_N, weights=weight_N))
        low, high = _ends(self._drawn_R(), kept_N, self._bounds, self._draws.seed, level)
        return Interval(value, low, high, n)

    def difference(self, level: float = LEVEL) -> Difference:
        """Returns the interval, and the p-value of random signs, which are the same as swapping two systems."""
        found = self.interval(level)
        if not found.n:
            return Difference(_NAN, _NAN, _NAN, 0, _NAN)
        size = float(np.abs(self._sum_N).sum()) / found.n
        flipped_R = (self._sum_N.sum() + self._flipped.sums_RC[:, 0]) / found.n
        return _difference(found, flipped_R, size, self._drawn_R(), level)

    def _drawn_R(self) -> np.ndarray:
        if self._constant:
            return np.full(self._draws.resamples, self._kept_N[0])
        sums_RC = self._drawn.sums_RC
        drawn_R: np.ndarray = sums_RC[:, 0] / (len(self._kept_N) if self._weight_N is None else sums_RC[:, 1])
        return drawn_R


class CorpusTest:
    """A corpus number in bootstrap resamples of its items, to be drawn by ``draws``.

    value_N: what the number is of each item alone, where that is known (for intervals of rare events, `ends_of`).
    Raises ValueError for no items.
    """

    def __init__(self, draws: Draws, corpus: Corpus, value_N: np.ndarray | None = None) -> None:
        if not len(corpus):
            raise ValueError("a statistic of no items cannot be resampled")
        self.corpus, self.value_N, self._draws = corpus, value_N, draws
        self.value = float(corpus(np.ones(len(corpus))))
        self._drawn = [draws.bootstrap(stats_NC) for stats_NC in corpus.slots] if isinstance(corpus, Sums) else []

    @cached_property
    def drawn_R(self) -> np.ndarray:
        """The number in each resample."""
        if isinstance(self.corpus, Sums):
            return self.corpus.of_sums([drawn.sums_RC for drawn in self._drawn])
        if self.corpus.grows:
            return _by_halves(self.corpus, self.value, self._draws)
        blocks = bootstrap_weights(len(self.corpus), self._draws.resamples, self._draws.seed)
        return np.concatenate([self.corpus(weight_RN) for weight_RN in blocks])

    def interval(self, level: float = LEVEL) -> Interval:
        """Returns the number with a bootstrap interval centred on it.

        A resample draws an item twice and misses another, so that a count of distinct words is always too
        low in it. The bootstrap distribution is therefore moved so that its mean is the number itself:
        the width is the bootstrap's, the place is the estimate's. It ends where the number's range does.
        """
        least, most = bounds = self.corpus.bounds
        low, high = _ends(_centred(self.drawn_R, self.value), self.value_N, bounds, self._draws.seed, level)
        return Interval(self.value, max(low, least), min(high, most), len(self.corpus))


class CorpusPairTest:
    """The difference of two systems' corpus numbers over the same items; ``draws`` swap items' two sides at random."""

    def __init__(self, draws: Draws, system: CorpusTest, baseline: CorpusTest) -> None:
        self.system, self.baseline, self._draws = system, baseline, draws
        self._moved: list[Drawn] = []
        if isinstance(system.corpus, Sums) and isinstance(baseline.corpus, Sums):
            self._sides = list(_alike(system.corpus, baseline.corpus))
            self._moved = [draws.swap(*sides) for sides in self._sides]

    def difference(self, level: float = LEVEL) -> Difference:
        """Returns the difference with its interval, and the p-value of the permutation test."""
        system, baseline = self.system, self.baseline
        observed = system.value - baseline.value
        drawn_R = _centred(system.drawn_R - baseline.drawn_R, observed)
        values = None
        if system.value_N is not None and baseline.value_N is not None:
            values = paired_values(system.value_N, baseline.value_N)
        bounds = bounds_of_difference(system.corpus.bounds, system.value_N, baseline.value_N)
        low, high = _ends(drawn_R, values, bounds, self._draws.seed, level)
        found = Interval(observed, low, high, len(system.corpus))
        return _difference(found, self._swapped_R(), abs(observed), drawn_R, level)

    def _swapped_R(self) -> np.ndarray:
        """The difference in each permutation."""
        one, other = self.system.corpus, self.baseline.corpus
        if isinstance(one, Sums) and isinstance(other, Sums):
            sides = list(zip(self._sides, self._moved, strict=True))
            swapped_R = one.of_sums([a_NC.sum(0) + moved.sums_RC for (a_NC, _), moved in sides])
            base_R = other.of_sums([b_NC.sum(0) - moved.sums_RC for (_, b_NC), moved in sides])
            return np.asarray(swapped_R - base_R)
        pooled = one.of_slots([[*a, *b] for a, b in _in_turn(one.slots, other.slots)])
        swaps = random_swaps(len(one), self._draws.resamples, self._draws.seed)
        return np.concatenate(
            [
                pooled(np.concatenate([1 - swap_RN, swap_RN], axis=1))
                - pooled(np.concatenate([swap_RN, 1 - swap_RN], axis=1))
                for swap_RN in swaps
            ]
        )


def _in_turn(one: Sequence[Any], other: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Slots of two systems side by side; one with fewer captions of a picture says them again."""
    for slot in range(math.lcm(len(one), len(other))):
        yield one[slot % len(one)], other[slot % len(other)]


def _alike(one: Sums, other: Sums) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The slots' statistics of two systems, with zeros where one has fewer columns."""
    width = max(stats_NC.shape[1] for stats_NC in (*one.slots, *other.slots))
    for sides in _in_turn(one.slots, other.slots):
        a, b = (
            side if side.shape[1] == width else np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in sides
        )
        yield a, b


def mean_interval(
    value_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = LEVEL,
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Returns the mean of the values that are not NaN, with its percentile bootstrap interval: see `MeanTest`."""
    draws = Draws(resamples, seed)
    test = MeanTest(draws, value_N, weight_N, bounds=bounds)
    draws.run()
    return test.interval(level)


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
    """Returns the mean of value − baseline over the items where neither is NaN.

    ``weight_N`` and ``bounds`` (of a value, not of a difference) are those of `MeanTest`.
    """
    draws = Draws(resamples, seed)
    ends = bounds_of_difference(bounds, value_N, baseline_N)
    test = MeanTest(draws, paired_values(value_N, baseline_N), weight_N, paired=True, bounds=ends)
    draws.run()
    return test.difference(level)


def resample(corpus: Corpus, *, resamples: int = RESAMPLES, seed: int = 0) -> CorpusTest:
    """Draws a corpus number's bootstrap distribution. Equal N, resamples and seed draw the same items."""
    draws = Draws(resamples, seed)
    found = CorpusTest(draws, corpus)
    draws.run()
    return found


def paired_resampled(
    system: Corpus, baseline: Corpus, *, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> Difference:
    """Returns the difference of a corpus number between two systems over the same items."""
    draws = Draws(resamples, seed)
    found = CorpusPairTest(draws, CorpusTest(draws, system), CorpusTest(draws, baseline))
    draws.run()
    return found.difference(level)


def paired_values(value_N: np.ndarray, baseline_N: np.ndarray) -> np.ndarray:
    """Returns value − baseline in float64."""
    difference_N: np.ndarray = np.asarray(value_N, dtype=float) - np.asarray(baseline_N, dtype=float)
    return difference_N


def _difference(found: Interval, swapped_R: np.ndarray, size: float, drawn_R: np.ndarray, level: float) -> Difference:
    """Makes the interval of the bootstrap and the p-value of the permutation test say the same of zero.

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


def _p_value(drawn_R: np.ndarray, observed: float, size: float) -> float:
    """The share of permutations at least as far from zero as what was seen, which counts as one of them."""
    if np.isnan(observed):
        return _NAN
    as_far = int(np.count_nonzero(np.abs(drawn_R) >= abs(observed) - 1e-9 * size))
    return (1 + as_far) / (1 + len(drawn_R))


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
) -> tuple[np.ndarray, np.ndarray]:
    """Returns resampled means from which the lower and the upper end of an interval are read.

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
    n, others = len(value_N), _others(value_N)
    if others >= min(FEW, n / 2):
        return drawn_R, drawn_R
    least, most = bounds if others < VERY_FEW else (value_N.min(), value_N.max())
    weight_R = np.random.default_rng([seed, n]).beta(1, n, len(drawn_R))
    rest_R = (1 - weight_R) * drawn_R
    return rest_R + weight_R * least, rest_R + weight_R * most


def _ends(
    drawn_R: np.ndarray, value_N: np.ndarray | None, bounds: Bounds, seed: int, level: float
) -> tuple[float, float]:
    low_R, high_R = ends_of(drawn_R, value_N, bounds, seed)
    return _quantile(low_R, (1 - level) / 2), _quantile(high_R, (1 + level) / 2)


def _quantile(drawn_R: np.ndarray, share: float) -> float:
    drawn_R = np.sort(drawn_R[~np.isnan(drawn_R)])  # NaN: a resample in which the number is 0 of 0
    if not len(drawn_R):
        return _NAN
    # np.quantile loads numpy.ma; the 0.0 takes the minus sign from a zero.
    return 0.0 + float(np.interp(share * (len(drawn_R) - 1), np.arange(len(drawn_R)), drawn_R))


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


def _kept(value_N: np.ndarray, weight_N: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Values that are there, and their weights where some differ from 1."""
    value_N = np.asarray(value_N, dtype=float)
    known_N = ~np.isnan(value_N)
    if weight_N is not None:
        known_N &= weight_N > 0
        weight_N = weight_N[known_N].astype(float)
        weight_N = None if (weight_N == 1).all() else weight_N
    return value_N[known_N], weight_N


def _centred(drawn_R: np.ndarray, value: float) -> np.ndarray:
    if (drawn_R == value).all() or np.isnan(drawn_R).all():
        return drawn_R
    centred_R: np.ndarray = drawn_R + (value - np.nanmean(drawn_R))
    return centred_R


# What a metric reads and what it gives back. Captions come as slots: every picture's first one, every second one, …

HUMAN, CHANCE = "human", "chance"  # systems that are yardsticks: people, and a blind guess
HUMAN_CHOICES = ("first", "random", "mean")


@dataclass(eq=False)
class CaptionSlot:
    """One caption for each picture, in the order of the ids, and the references of each."""

    captions: list[str]
    references: list[list[str]] | None = None
    repeats: np.ndarray | None = None  # where this slot repeats a caption of a picture with fewer than others


@dataclass(frozen=True)
class Measurement:
    """One value per picture (NaN abstains), or a corpus number, or both; the corpus number then is what is printed.

    ``weight_N``: how many observations (questions) a picture's value is the mean of; None: one each.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


def system_slots(lists: list[list[str]], all_references: list[list[str]] | None) -> list[CaptionSlot]:
    """Returns a system's captions as slots: every picture's first ones, every picture's second ones, and so on.

    A picture with fewer captions than others says them again; that counts for corpus numbers of one caption only.
    """
    width = max(map(len, lists))
    return [
        CaptionSlot(
            [texts[number % len(texts)] for texts in lists],
            all_references,
            np.array([number >= len(texts) for texts in lists]) if width > 1 else None,
        )
        for number in range(width)
    ]


def caption_lists(slots: Sequence[CaptionSlot]) -> list[list[str]]:
    """Returns all captions of each picture, those that a slot only says again left out."""
    kept = [np.zeros(len(slot.captions), bool) if slot.repeats is None else slot.repeats for slot in slots]
    return [
        [slot.captions[number] for slot, repeats_N in zip(slots, kept, strict=True) if not repeats_N[number]]
        for number in range(len(slots[0].captions))
    ]


def human_slots(choice: str, all_references: list[list[str]] | None, seed: int) -> list[CaptionSlot]:
    """Returns people's captions as a system, each scored against the picture's other references."""
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


def _human_slot(all_references: list[list[str]], picks: list[int], slot: int) -> CaptionSlot:
    captions = [texts[pick] for texts, pick in zip(all_references, picks, strict=True)]
    others = [texts[:pick] + texts[pick + 1 :] for texts, pick in zip(all_references, picks, strict=True)]
    return CaptionSlot(captions, others, np.array([slot >= len(texts) for texts in all_references]))


def merge_slots(measured_S: Sequence[Measurement], slots: Sequence[CaptionSlot]) -> Measurement:
    """Returns a system's measurement: that of its captions, or the mean over several captions of a picture."""
    values = [measured.value_N for measured in measured_S if measured.value_N is not None]
    value_N = values[0] if values else None
    if len(values) > 1:
        # A slot that repeats a reference (a picture with fewer than the others) counts for corpus numbers only.
        value_SN = np.array(
            [
                own_N if slot.repeats is None else np.where(slot.repeats, np.nan, own_N)
                for slot, own_N in zip(slots, values, strict=True)
            ]
        )
        count_N = np.count_nonzero(~np.isnan(value_SN), axis=0)
        value_N = np.where(count_N > 0, np.nansum(value_SN, axis=0) / np.maximum(count_N, 1), np.nan)
    corpora = [measured.corpus for measured in measured_S if measured.corpus is not None]
    if not corpora:
        return Measurement(value_N, weight_N=measured_S[0].weight_N)
    return Measurement(value_N, corpora[0].of_slots([corpus.slots[0] for corpus in corpora]))


class MetricTests:
    """The intervals of one metric's systems and their paired differences, to be drawn by ``draws``.

    bounds: the least and the greatest value of a picture.
    """

    def __init__(
        self,
        draws: Draws,
        measured: Mapping[str, Measurement],
        pairs: Iterable[tuple[str, str]],
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._systems: dict[str, CorpusTest | MeanTest] = {
            system: CorpusTest(draws, one.corpus, one.value_N)
            if one.corpus is not None
            else MeanTest(draws, _values(one), one.weight_N, bounds=bounds)
            for system, one in measured.items()
        }
        self._pairs: dict[tuple[str, str], CorpusPairTest | MeanTest] = {}
        for a, b in pairs:
            base, system = self._systems[a], self._systems[b]
            if isinstance(base, CorpusTest) and isinstance(system, CorpusTest):
                self._pairs[a, b] = CorpusPairTest(draws, system, base)
                continue
            base_N, value_N = _values(measured[a]), _values(measured[b])
            ends = bounds_of_difference(bounds, value_N, base_N)
            difference_N = paired_values(value_N, base_N)
            self._pairs[a, b] = MeanTest(draws, difference_N, measured[b].weight_N, paired=True, bounds=ends)

    def intervals(self) -> dict[str, Interval]:
        """Returns them by system; call it after `Draws.run`, as `differences`."""
        return {system: test.interval() for system, test in self._systems.items()}

    def differences(self) -> dict[tuple[str, str], Difference]:
        """Returns system b minus system a, by pair."""
        return {pair: test.difference() for pair, test in self._pairs.items()}


def _values(measured: Measurement) -> np.ndarray:
    assert measured.value_N is not None
    return measured.value_N
