"""Intervals for means over ratings that share participants and items.

The *pigeonhole bootstrap* (Owen 2007): participants and items are drawn with replacement, each by itself, and a rating
weighs the product of the two counts. It takes both for samples, and never gives too small an interval where ratings of
one participant, or of one item, are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tellapart.metrics.resampling import bootstrap_weights
from tellapart.metrics.significance import Difference, Interval

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ratings:
    """M ratings: who (participant), of what (item), of which system, and the value."""

    participant_M: npt.NDArray[np.int64]
    item_M: npt.NDArray[np.int64]
    system_M: npt.NDArray[np.int64]
    value_M: Floats

    def __len__(self) -> int:
        return len(self.value_M)


def resampled_means(ratings: Ratings, systems: int, resamples: int, seed: int) -> Floats:
    """Each system's mean in each resample, R×S; NaN where a resample has no rating of it."""
    participants, person_M = np.unique(ratings.participant_M, return_inverse=True)
    items, item_M = np.unique(ratings.item_M, return_inverse=True)
    sums, counts = [], []
    people, things = (
        np.concatenate(list(bootstrap_weights(len(own), resamples, 2 * seed + place)))
        for place, own in enumerate((participants, items))
    )
    member_MS = np.eye(systems)[ratings.system_M]
    value_MS = member_MS * ratings.value_M[:, None]
    step = max(1, 4_000_000 // max(1, len(ratings)))
    for start in range(0, resamples, step):
        part = slice(start, start + step)
        weight_RM = people[part][:, person_M] * things[part][:, item_M]
        sums.append(weight_RM @ value_MS)
        counts.append(weight_RM @ member_MS)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.concatenate(sums) / np.concatenate(counts), float)


def means(ratings: Ratings, systems: int) -> Floats:
    """Each system's mean, S; NaN where it has no rating."""
    member_MS = np.eye(systems)[ratings.system_M]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(ratings.value_M @ member_MS / member_MS.sum(0), float)


def interval(value: float, drawn_R: Floats, n: int, confidence: float) -> Interval:
    """A value with the percentiles of its resamples."""
    low, high = _percentiles(drawn_R, confidence)
    return Interval(value, low, high, n)


def difference(value: float, drawn_R: Floats, n: int, confidence: float) -> Difference:
    """A difference with the percentiles of its resamples, and twice the share of them on the other side of zero."""
    low, high = _percentiles(drawn_R, confidence)
    known = drawn_R[np.isfinite(drawn_R)]
    p = float("nan")
    if len(known):
        p = min(1.0, 2 * (1 + min((known <= 0).sum(), (known >= 0).sum())) / (len(known) + 1))
    return Difference(value, low, high, n, float(p))


def _percentiles(drawn_R: Floats, confidence: float) -> tuple[float, float]:
    known = drawn_R[np.isfinite(drawn_R)]
    if not len(known):
        return float("nan"), float("nan")
    tail = 50 * (1 - confidence)
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)
