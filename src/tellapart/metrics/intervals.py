"""Confidence intervals of metrics.

Intervals are computed with the paired percentile bootstrap (Efron and Tibshirani 1993; Koehn 2004, EMNLP), or with
Student's t and the jackknife standard error if there are fewer than 30 units. Random halves replace the resamples of a
count that grows with the corpus, and rare events widen an interval (`ends_of`). Intervals do not depend on p-values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Corpus, Recounted, Sums, mean_of
from tellapart.metrics.draws import RESAMPLES, Draws, bootstrap_weights, disjoint_halves

LEVEL = 0.95
PROCEDURES = "intervals"  # the part of a signature that says how the intervals were computed
BOOTSTRAP, STUDENT, RARE, SINGLE = "bootstrap", "student-t", "rare-events", "none"  # how an interval was computed
# A percentile bootstrap needs at least `FEW` units. For `VERY_FEW`, see `ends_of`.
FEW, VERY_FEW = 30, 5
# The 97.5% quantiles of Student's t for 1 to 28 degrees of freedom.
T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
               2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
               2.0518, 2.0484)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """A score over ``n`` items with its 95% interval. Unknown fields are NaN, or 0 for ``n``."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0


class Estimate:
    """A system's score with its distribution over the resamples of ``draws``.

    value_N: each unit's own score, if known. It is needed for intervals of rare events (`ends_of`).
    """

    procedure = SINGLE  # how the last interval was computed: BOOTSTRAP, STUDENT or RARE; SINGLE if there is no interval

    def __init__(self, draws: Draws, corpus: Corpus, value_N: np.ndarray | None = None) -> None:
        self.corpus, self.value_N, self._draws = corpus, value_N, draws
        self.value = float(corpus(np.ones(len(corpus)))) if len(corpus) else math.nan
        self._sums = draws.ask(bootstrap_weights, corpus.stats) if isinstance(corpus, Sums) else None

    @property
    def n(self) -> int:
        """Returns the number of observations."""
        own = self.corpus.n if isinstance(self.corpus, Sums) else None
        return len(self.corpus) if own is None else own

    @cached_property
    def drawn_R(self) -> np.ndarray:
        """Returns the score in each resample."""
        if isinstance(self.corpus, Recounted):
            return _by_halves(self.corpus, self.value, self._draws)
        assert self._sums is not None
        return self.corpus.of_sums(self._sums())

    @cached_property
    def left_out_N(self) -> np.ndarray | None:
        """Returns the leave-one-out scores for the jackknife, or None if the bootstrap is used."""
        few = isinstance(self.corpus, Sums) and 1 < len(self.corpus) < FEW
        return self.corpus(1 - np.eye(len(self.corpus))) if few else None

    def interval(self) -> Interval:
        """Returns the score with its interval, clipped to the score's range."""
        if not len(self.corpus):
            return Interval()
        least, most = bounds = self.corpus.bounds
        low, high, self.procedure = interval_ends(
            self.value, len(self.corpus), self.drawn_R, self.left_out_N, self.value_N, bounds, self._draws.seed
        )
        return Interval(0.0 + self.value, max(low, least), min(high, most), self.n)


def mean_estimate(
    draws: Draws, value_N: np.ndarray, weight_N: np.ndarray | None, unit_N: np.ndarray | None, bounds: Bounds
) -> Estimate:
    """Returns the mean of values (see `mean_of`) with its distribution."""
    corpus = mean_of(value_N, weight_N, unit_N, bounds)
    return Estimate(draws, corpus, corpus.score(corpus.stats))


def mean_interval(
    value_N: np.ndarray,
    *,
    weight_N: np.ndarray | None = None,
    unit_N: np.ndarray | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    bounds: Bounds = UNBOUNDED,
) -> Interval:
    """Returns the mean of the values that are not NaN (see `mean_of`), with its interval."""
    return mean_estimate(Draws(resamples, seed), value_N, weight_N, unit_N, bounds).interval()


def count_unusual(value_N: np.ndarray) -> int:
    """Counts the values that differ from the most frequent value."""
    return len(value_N) - int(np.unique(value_N, return_counts=True)[1].max())


def ends_of(
    drawn_R: np.ndarray, value_N: np.ndarray | None, bounds: Bounds, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns resampled means of rare events, one array for the lower and one for the upper end of an interval.

    Returns None for a metric without bounds, and unless most values are identical and fewer than `FEW` differ from them
    (for example, the few captions that repeat words). With so few events, resamples cannot represent values that the n
    items happened to miss: if no event occurs, the bootstrap interval would be [0, 0]. Therefore, one more value with a
    random weight, Beta(1, n), represents what was not observed. It is the smallest value for the lower end and the
    largest value for the upper end, or the metric's bound if fewer than `VERY_FEW` values differ. For binary events,
    this gives the exact interval (Clopper and Pearson 1934); for other values, it gives the bound of Learned-Miller and
    Thomas (2019, arXiv:1905.06208).
    """
    value_N = np.zeros(0) if value_N is None else value_N[~np.isnan(value_N)]
    if not len(value_N) or not np.isfinite(bounds).all():
        return None
    n, others = len(value_N), count_unusual(value_N)
    if others >= min(FEW, n / 2):
        return None
    least, most = bounds if others < VERY_FEW else (value_N.min(), value_N.max())
    weight_R = np.random.default_rng([seed, n]).beta(1, n, len(drawn_R))
    rest_R = (1 - weight_R) * drawn_R
    return rest_R + weight_R * least, rest_R + weight_R * most


def interval_ends(
    value: float,
    n: int,
    drawn_R: np.ndarray,
    left_out_N: np.ndarray | None,
    value_N: np.ndarray | None,
    bounds: Bounds,
    seed: int,
) -> tuple[float, float, str]:
    """Returns the ends of the 95% interval and how they were computed: with `ends_of` for rare events,
    Student's t, or bootstrap percentiles.
    """
    rare = ends_of(drawn_R, value_N, bounds, seed)
    if rare is None and left_out_N is not None:
        error = math.sqrt((n - 1) / n * float(np.square(left_out_N - left_out_N.mean()).sum()))
        return value - T_QUANTILES[n - 2] * error, value + T_QUANTILES[n - 2] * error, STUDENT
    if rare is None and n == 1:
        return math.nan, math.nan, SINGLE  # a single unit gives no estimate of the variance
    low_R, high_R = rare or (drawn_R, drawn_R)
    procedure = BOOTSTRAP if rare is None else RARE
    return _quantile(low_R, (1 - LEVEL) / 2), _quantile(high_R, (1 + LEVEL) / 2), procedure


def _quantile(drawn_R: np.ndarray, share: float) -> float:
    drawn_R = drawn_R[~np.isnan(drawn_R)]  # a resample's score is NaN if it is 0/0
    return 0.0 + float(np.quantile(drawn_R, share)) if len(drawn_R) else math.nan


def _by_halves(corpus: Recounted, value: float, draws: Draws) -> np.ndarray:
    """Resamples a growing score V as V(n) + (V(half) − V(other half)) · √(V(n) / 2 V̄(half)), with random halves.

    For any V, the difference between two disjoint halves has twice the variance of V(n/2). The variance of a count of
    distinct things grows with n as the count itself does (for Poisson samples of a power law, as the expected count
    does).
    """
    halves = disjoint_halves(len(corpus), draws.resamples, draws.seed)
    a_R, b_R = (np.concatenate(side) for side in zip(*[(corpus(a), corpus(b)) for a, b in halves], strict=True))
    half = float(a_R.mean() + b_R.mean()) / 2
    drawn_R: np.ndarray = value + (a_R - b_R) * math.sqrt(value / (2 * half) if half > 0 else 0.5)
    return drawn_R
