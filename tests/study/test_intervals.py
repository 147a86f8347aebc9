"""Intervals over participants and items: whole clusters, and how often they cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.metrics.draws import bootstrap_weights
from tellapart.study.intervals import Ratings, difference, interval, means, resampled_means, student_quantile


def test_the_bootstrap_draws_whole_clusters() -> None:
    """Equal to a loop over copies of participants, of items and of ratings."""
    rng = np.random.default_rng(0)
    rows = [(p, i, (p + i) % 2) for p in range(5) for i in range(7) if rng.random() < 0.8]
    person, item, system = np.array(rows).T
    ratings = Ratings(person + 40, item * 3, system, rng.normal(size=len(rows)))
    found = resampled_means(ratings, 2, 50, seed=3)
    assert found.clusters == (5, 7, len(rows)) and found.freedom == 4
    axes = (person, item, np.arange(len(rows)))
    for place, (axis, drawn) in enumerate(zip(axes, (found.person_R, found.item_R, found.rating_R), strict=True)):
        weight_RG = np.concatenate(list(bootstrap_weights(len(set(axis)), 50, 9 + place)))
        for resample in range(50):
            for number in range(2):
                values = [
                    value
                    for own, s, value in zip(axis, system, ratings.value_M, strict=True)
                    for _ in range(int(weight_RG[resample, own]))
                    if s == number
                ]
                expected = np.mean(values) if values else np.nan
                assert drawn[resample, number] == pytest.approx(expected, nan_ok=True)
    assert means(ratings, 2)[1] == pytest.approx(ratings.value_M[system == 1].mean())


@pytest.mark.parametrize(("people", "things"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_intervals_cover_the_truth_as_often_as_they_say(people: float, things: float) -> None:
    """Of 120 studies in which participants, items, both or neither differ, 95 % intervals miss about 6; one that takes
    all ratings for independent misses far more where ratings of a cluster are alike."""
    missed = naive = 0
    for study in range(120):
        rng = np.random.default_rng(study)
        person, item = (axis.ravel() for axis in np.meshgrid(np.arange(24), np.arange(20), indexing="ij"))
        value = people * rng.normal(size=24)[person] + things * rng.normal(size=20)[item] + rng.normal(size=len(person))
        draws = resampled_means(Ratings(person, item, np.zeros(len(person), int), value), 1, 300, study)
        found = interval(float(value.mean()), draws[0], len(value), 0.95, (-9, 9))
        missed += not found.low <= 0 <= found.high
        naive += abs(value.mean()) > 1.96 * value.std() / np.sqrt(len(value))
    assert 1 <= missed <= 13 and (naive >= 36 or not people + things)


@pytest.mark.parametrize(("freedom", "expected"), [(3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (10**6, 1.960)])
def test_students_quantiles(freedom: int, expected: float) -> None:
    assert student_quantile(0.95, freedom) == pytest.approx(expected, rel=0.012)


def test_a_single_participant_has_no_interval() -> None:
    ratings = Ratings(np.zeros(6, int), np.arange(6), np.arange(6) % 2, np.arange(6.0))
    draws = resampled_means(ratings, 2, 100, 0)
    found = difference(1.0, draws[1] - draws[0], 6, 0.95)
    assert np.isnan([found.low, found.high, found.p]).all()
    one = interval(40.0, draws[0], 3, 0.95, (0.0, 100.0))
    assert one.value == 40 and np.isnan([one.low, one.high]).all(), "not the whole scale"
