"""The figures of a report against published numbers, plain loops and planted effects."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.errors import UsageError
from tellapart.metrics.statistics import bootstrap_weights
from tellapart.study.analysis import (
    Ratings,
    difference,
    fleiss_kappa,
    harmonic,
    interval,
    krippendorff_alpha,
    means,
    option_counts_of,
    resampled_means,
    student_quantile,
)
from tellapart.study.plan import Assumptions, center, cheapest, plan, simulated_ratings, spread_for


def test_f1_is_that_of_paper_1_table_2() -> None:
    """The harmonic mean of the two printed means is the printed F1, for all four systems."""
    descriptiveness, accuracy = np.array([3.89, 3.41, 4.67, 3.53]), np.array([4.39, 4.57, 4.05, 4.53])
    assert harmonic(descriptiveness, accuracy).round(2).tolist() == [4.12, 3.91, 4.34, 3.97]


def test_fleiss_kappa_of_his_paper() -> None:
    """Ten subjects, fourteen raters, five categories; kappa 0.210 (the example of Fleiss 1971 as it is handed down)."""
    counts = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
              [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]  # fmt: skip
    assert fleiss_kappa(counts) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa([*counts, [1, 0, 0, 0, 0]]) == fleiss_kappa(counts), "one rater agrees with nobody"
    assert fleiss_kappa([[3, 0], [0, 3]]) == pytest.approx(1) and fleiss_kappa([[3, 0], [3, 0]]) is None
    assert fleiss_kappa([[1, 0]]) is None


def test_krippendorffs_alpha_of_his_paper() -> None:
    """Krippendorff 2011, example C and E: four observers, twelve units, gaps; nominal 0.743, ordinal 0.815."""
    observers = [[1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0], [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
                 [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0], [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0]]  # fmt: skip
    rows = [(unit, value - 1) for own in observers for unit, value in enumerate(own) if value]
    counts = option_counts_of(*zip(*rows, strict=True), 5)
    assert krippendorff_alpha(counts) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(counts, "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(counts, "interval") == pytest.approx(0.849, abs=5e-4)
    assert krippendorff_alpha([[2, 0], [2, 0]]) is None and krippendorff_alpha([[1, 0], [0, 1]]) is None


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


# Planning.


@pytest.mark.parametrize("agreement", [0.1, 0.3, 0.6])
def test_planned_answers_agree_as_much_as_assumed(agreement: float) -> None:
    assumed = Assumptions("pick", 0.4, 0.1, agreement, systems=2, block=4000)
    ratings = simulated_ratings(assumed, 4000, 6, np.random.default_rng(0))
    unit = ratings.item_M * 2 + ratings.system_M
    alpha = krippendorff_alpha(option_counts_of(unit, ratings.value_M.astype(int), 2))
    assert alpha == pytest.approx(agreement, abs=0.04)
    assert means(ratings, 2) == pytest.approx([0.4, 0.5], abs=0.035)
    spread = spread_for(0.4, agreement)
    draws = 1 / (1 + np.exp(-(center(0.4, spread) + spread * np.random.default_rng(1).normal(size=200_000))))
    assert draws.mean() == pytest.approx(0.4, abs=0.005)
    assert draws.var() / 0.24 == pytest.approx(agreement, abs=0.01)


@pytest.mark.parametrize(("kind", "base", "gain"), [("pick", 0.4, 0.15), ("rate", 3.5, 0.5), ("compare", 0.5, 0.3)])
def test_power_grows_with_the_study_and_is_small_for_nothing(kind: str, base: float, gain: float) -> None:
    assumed = Assumptions(kind, base, gain, 0.2, systems=2, block=50, pay=10, fee=0.5)
    rows = plan(assumed, [20, 100], [1, 4], studies=60)
    power = {(row.items, row.raters): row.power for row in rows}
    assert power[20, 1] < power[100, 4] and power[100, 4] > 0.8
    assert [row.cost for row in rows] == sorted(row.cost for row in rows)
    turns = 1 if kind == "compare" else 2
    largest = next(row for row in rows if (row.items, row.raters) == (100, 4))
    assert (largest.participants, largest.cost) == (2 * turns * 4, 2 * turns * 4 * 15)
    best = cheapest(rows, 0.8)
    assert best is not None and all(row.power < 0.8 for row in rows if row.cost < best.cost)
    assert cheapest(rows, 0.8, budget=best.cost - 1) is None
    nothing = plan(Assumptions(kind, base, 1e-9, 0.2, block=50), [60], [2], studies=60)
    assert nothing[0].power <= 0.1, "one side of five in a hundred"


def test_comparisons_of_three_systems_come_from_the_participants_of_all_blocks() -> None:
    """One block for each pair of systems: its two systems are judged by three times as many people as raters."""
    assumed = Assumptions("compare", 0.5, 0.3, 0.3, systems=3, block=50)
    ratings = simulated_ratings(assumed, 100, 2, np.random.default_rng(0))
    assert len(np.unique(ratings.participant_M)) == 2 * 3 * 2 and len(ratings) == 2 * 100 * 2
    assert len(np.unique(ratings.participant_M * 100 + ratings.item_M)) == 100 * 2, "nobody sees an item twice"
    power = {row.raters: row.power for row in plan(Assumptions("compare", 0.5, 0.3, 0.3, 3), [100], [1, 3], studies=40)}
    assert power[1] > 0 and power[3] > 0.8


def test_assumptions_that_cannot_be_are_one_line() -> None:
    for wrong in ({"base": 0.98}, {"difference": 0.0}, {"agreement": 1.0}, {"systems": 1}, {"kind": "x"}):
        with pytest.raises(UsageError):
            Assumptions(**{"kind": "pick", "base": 0.4, "difference": 0.05, "agreement": 0.3, "systems": 2, **wrong})


@pytest.mark.parametrize("base", [3.5, 4.4, 4.6])
def test_simulated_ratings_have_the_difference_that_was_asked_for(base: float) -> None:
    """Ratings end at 5: opinions that differ by 0.3 give ratings that differ by less."""
    assumed = Assumptions("rate", base, 0.3, 0.3, block=20)
    found = means(simulated_ratings(assumed, 4000, 4, np.random.default_rng(0)), 2)
    assert found == pytest.approx([base, base + 0.3], abs=0.03)


def test_any_share_of_a_comparison_can_be_planned_for() -> None:
    assert Assumptions("compare", 0.5, 0.6, 0.3).difference == 0.6, "80 to 20"
    with pytest.raises(UsageError, match="expected both systems between 0 and 1"):
        Assumptions("compare", 0.5, 1.0, 0.3)
