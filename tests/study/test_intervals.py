"""Intervals over participants and items: whole clusters, and how often they cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.metrics.draws import bootstrap_weights
from tellapart.study.intervals import Ratings, system_means


def test_the_bootstrap_draws_whole_clusters() -> None:
    """Equal to a loop over copies of participants, of items and of ratings."""
    rng = np.random.default_rng(0)
    rows = [(p, i, (p + i) % 2) for p in range(5) for i in range(7) if rng.random() < 0.8]
    person, item, system = np.array(rows).T
    ratings = Ratings(person + 40, item * 3, system, rng.normal(size=len(rows)))
    found = system_means(ratings, 2, 50, seed=3)
    assert found.clusters == (5, 7, len(rows))
    axes = (person, item, np.arange(len(rows)))
    for place, (axis, drawn) in enumerate(zip(axes, found.drawn_ARS, strict=True)):
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
    assert found.value_S[1] == pytest.approx(ratings.value_M[system == 1].mean())


@pytest.mark.parametrize(("people", "things"), [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_intervals_cover_the_truth_as_often_as_they_say(people: float, things: float) -> None:
    """Of 120 studies in which participants, items, both or neither differ, 95 % intervals miss about 6; one that takes
    all ratings for independent misses far more where ratings of a cluster are alike."""
    missed = naive = 0
    for study in range(120):
        rng = np.random.default_rng(study)
        person, item = (axis.ravel() for axis in np.meshgrid(np.arange(24), np.arange(20), indexing="ij"))
        value = people * rng.normal(size=24)[person] + things * rng.normal(size=20)[item] + rng.normal(size=len(person))
        ratings = Ratings(person, item, np.zeros(len(person), int), value)
        found = system_means(ratings, 1, 300, study).interval(0, 0.95, (-9, 9))
        missed += not found.low <= 0 <= found.high
        naive += abs(value.mean()) > 1.96 * value.std() / np.sqrt(len(value))
    assert 1 <= missed <= 13 and (naive >= 36 or not people + things)


def test_the_difference_of_two_items_is_students_test() -> None:
    """With participants and items as the same clusters, the interval is that of Student's t."""
    value = np.random.default_rng(0).normal(size=6)
    number = np.tile(np.arange(6), 2)
    ratings = Ratings(number, number, np.repeat([0, 1], 6), np.concatenate([np.zeros(6), value]))
    found = system_means(ratings, 2, 50_000, 0).difference(0, 1, 0.95)
    half = 2.570582 * value.std(ddof=1) / np.sqrt(6)
    assert [found.low, found.high] == pytest.approx([value.mean() - half, value.mean() + half], abs=0.02)
    from scipy.stats import ttest_1samp

    assert found.p == pytest.approx(ttest_1samp(value, 0).pvalue, abs=0.01)


def test_a_single_participant_has_no_interval() -> None:
    found = system_means(Ratings(np.zeros(6, int), np.arange(6), np.arange(6) % 2, np.arange(6.0)), 2, 100, 0)
    difference = found.difference(0, 1, 0.95)
    assert difference.value == 1 and np.isnan([difference.low, difference.high, difference.p]).all()
    one = found.interval(0, 0.95, (0.0, 100.0))
    assert one.value == 2 and np.isnan([one.low, one.high]).all(), "not the whole scale"


def test_a_system_without_answers_has_no_mean_and_no_interval() -> None:
    found = system_means(Ratings(np.arange(6), np.arange(6), np.zeros(6, int), np.arange(6.0)), 2, 100, 0)
    assert np.isnan([found.interval(1, 0.95, (0, 9)).value, found.interval(1, 0.95, (0, 9)).low]).all()
    assert np.isnan([found.difference(0, 1, 0.95).value, found.difference(0, 1, 0.95).p]).all()
