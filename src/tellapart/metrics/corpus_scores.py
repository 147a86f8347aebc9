"""Corpus scores that can be recomputed for resamples of the items.

A metric consists of sufficient statistics (N×C, one row per item) and a score, which is a function of their sums
(`Sums`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

Bounds = tuple[float, float]  # the lowest and highest possible value
UNBOUNDED: Bounds = (-math.inf, math.inf)
PERCENT: Bounds = (0.0, 100.0)


@dataclass(frozen=True, eq=False)
class Sums:
    """A score computed from the summed statistics of N units: ``score(stats.sum(0))``.

    stats: N×C, or N×S×C for S captions per item; the score is then averaged over the S captions.
    score: maps sums, whose last axis has size C, to scores without that axis.
    n: the number of observations, if it differs from N.
    """

    stats: np.ndarray
    score: Callable[[np.ndarray], np.ndarray]
    bounds: Bounds = UNBOUNDED
    n: int | None = None

    def __len__(self) -> int:
        return len(self.stats)

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """Computes the score for the units' weights ``weight_N``, or R scores for weights R×N."""
        return self.of_sums(np.tensordot(weight_N, self.stats, 1))

    def of_sums(self, sums: np.ndarray) -> np.ndarray:
        """Computes a score for each row of sums, R×C or R×S×C."""
        number = self.score(sums)
        return np.asarray(number.mean(-1) if self.stats.ndim == 3 else number)


@dataclass(frozen=True, eq=False)
class Recounted:
    """A count over N items that grows with N, like that of distinct words. It is computed as
    ``build(rows)(weight_N)``, with one row per item.

    Since resamples repeat items, the variance of such a count across resamples differs from its variance across new
    items, so disjoint halves are drawn instead.

    slots: the rows of all items' first captions, of their second captions, and so on. The score is averaged over them.
    """

    slots: Sequence[Sequence[Any]]
    build: Callable[[list[Any]], Callable[[np.ndarray], float]]
    bounds: ClassVar[Bounds] = (0.0, math.inf)

    def __len__(self) -> int:
        return len(self.slots[0])

    @cached_property
    def _functions(self) -> list[Callable[[np.ndarray], float]]:
        return [self.build(list(rows)) for rows in self.slots]

    def __call__(self, weight_N: np.ndarray) -> np.ndarray:
        """See `Sums.__call__`."""
        if weight_N.ndim == 2:
            return np.array([self(row_N) for row_N in weight_N])
        return np.asarray(np.mean([function(weight_N) for function in self._functions]))


Corpus = Sums | Recounted


@dataclass(frozen=True)
class Measurement:
    """A metric's result: one value per picture, a corpus score, or both. NaN leaves a picture out. If both are given,
    the corpus score is printed.

    ``weight_N``: the number of observations (questions) behind each picture's value; None means one observation per
        picture.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


def merged(corpora: Sequence[Corpus]) -> Corpus:
    """Averages a score over each item's captions. ``corpora``: one corpus of all first captions, one of all second
    captions, and so on.
    """
    first = corpora[0]
    if len(corpora) == 1:
        return first
    if isinstance(first, Sums):
        return replace(first, stats=np.stack([one.stats for one in corpora if isinstance(one, Sums)], axis=1))
    return replace(first, slots=[slot for one in corpora if isinstance(one, Recounted) for slot in one.slots])


def mean_of(
    value_N: np.ndarray,
    weight_N: np.ndarray | None = None,
    unit_N: np.ndarray | None = None,
    bounds: Bounds = UNBOUNDED,
) -> Sums:
    """Returns the mean, over units, of the values that are not NaN.

    weight_N: the number of observations behind each value.
    unit_N: each item's unit, if items are dependent. Each row of the statistics is then a unit, and its score is the
        unit's mean.
    """
    value_N = np.asarray(value_N, dtype=float)
    weight_N = np.ones(len(value_N)) if weight_N is None else np.asarray(weight_N, dtype=float)
    known_N = ~np.isnan(value_N) & (weight_N > 0)
    stats = np.stack([value_N * weight_N, weight_N], axis=1)[known_N]
    n = round(float(stats[:, 1].sum()))
    if unit_N is not None:
        stats = by_unit(stats, unit_N[known_N])
    return Sums(stats, lambda sums: sums[..., 0] / sums[..., 1], bounds, n)


def with_mean(value_N: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the mean of the values, ignoring NaN, and the values themselves."""
    known_N = value_N[~np.isnan(value_N)]
    return (float(known_N.mean()) if len(known_N) else math.nan), value_N


def by_unit(stats: np.ndarray, unit_N: np.ndarray) -> np.ndarray:
    """Sums the items' statistics within each unit."""
    units, row_N = np.unique(unit_N, return_inverse=True)
    sums = np.zeros((len(units), *stats.shape[1:]))
    np.add.at(sums, row_N, stats)
    return sums
