"""Planned studies: agreement and power as assumed, and comparisons of several systems."""

from __future__ import annotations

import numpy as np
import pytest

from tellapart.errors import UsageError
from tellapart.study.intervals import Floats, Ratings, system_means
from tellapart.study.power import Assumptions, center, cheapest, planned_designs, simulated_ratings, spread_for
from tellapart.study.rater_agreement import krippendorff_alpha, option_counts_of


def means(ratings: Ratings) -> Floats:
    return system_means(ratings, 2, 1, 0).value_S


@pytest.mark.parametrize("agreement", [0.1, 0.3, 0.6])
def test_planned_answers_agree_as_much_as_assumed(agreement: float) -> None:
    assumed = Assumptions("pick", 0.4, 0.1, agreement, systems=2, block=4000)
    ratings = simulated_ratings(assumed, 4000, 6, np.random.default_rng(0))
    unit = ratings.item_M * 2 + ratings.system_M
    alpha = krippendorff_alpha(option_counts_of(unit, ratings.value_M.astype(int), 2))
    assert alpha == pytest.approx(agreement, abs=0.04)
    assert means(ratings) == pytest.approx([0.4, 0.5], abs=0.035)
    spread = spread_for(0.4, agreement)
    draws = 1 / (1 + np.exp(-(center(0.4, spread) + spread * np.random.default_rng(1).normal(size=200_000))))
    assert draws.mean() == pytest.approx(0.4, abs=0.005)
    assert draws.var() / 0.24 == pytest.approx(agreement, abs=0.01)


@pytest.mark.parametrize(("kind", "base", "gain"), [("pick", 0.4, 0.15), ("rate", 3.5, 0.5), ("compare", 0.5, 0.3)])
def test_power_grows_with_the_study_and_is_small_for_nothing(kind: str, base: float, gain: float) -> None:
    assumed = Assumptions(kind, base, gain, 0.2, systems=2, block=50, pay=10, fee=0.5)
    rows = planned_designs(assumed, [20, 100], [1, 4], studies=60)
    power = {(row.items, row.raters): row.power for row in rows}
    assert power[20, 1] < power[100, 4] and power[100, 4] > 0.8
    assert [row.cost for row in rows] == sorted(row.cost for row in rows)
    turns = 1 if kind == "compare" else 2
    largest = next(row for row in rows if (row.items, row.raters) == (100, 4))
    assert (largest.participants, largest.cost) == (2 * turns * 4, 2 * turns * 4 * 15)
    best = cheapest(rows, 0.8)
    assert best is not None and all(row.power < 0.8 for row in rows if row.cost < best.cost)
    assert cheapest(rows, 0.8, budget=best.cost - 1) is None
    nothing = planned_designs(Assumptions(kind, base, 1e-9, 0.2, block=50), [60], [2], studies=60)
    assert nothing[0].power <= 0.1, "one side of five in a hundred"


def test_comparisons_of_three_systems_come_from_the_participants_of_all_blocks() -> None:
    """One block for each pair of systems: its two systems are judged by three times as many people as raters."""
    assumed = Assumptions("compare", 0.5, 0.3, 0.3, systems=3, block=50)
    ratings = simulated_ratings(assumed, 100, 2, np.random.default_rng(0))
    assert len(np.unique(ratings.participant_M)) == 2 * 3 * 2 and len(ratings.value_M) == 2 * 100 * 2
    assert len(np.unique(ratings.participant_M * 100 + ratings.item_M)) == 100 * 2, "nobody sees an item twice"
    power = {
        row.raters: row.power
        for row in planned_designs(Assumptions("compare", 0.5, 0.3, 0.3, 3), [100], [1, 3], studies=40)
    }
    assert power[1] > 0 and power[3] > 0.8


def test_assumptions_that_cannot_be_are_one_line() -> None:
    for wrong in ({"base": 0.98}, {"difference": 0.0}, {"kind": "x"}):
        with pytest.raises(UsageError):
            Assumptions(**{"kind": "pick", "base": 0.4, "difference": 0.05, "agreement": 0.3, "systems": 2, **wrong})


@pytest.mark.parametrize("base", [3.5, 4.4, 4.6])
def test_simulated_ratings_have_the_difference_that_was_asked_for(base: float) -> None:
    """Ratings end at 5: opinions that differ by 0.3 give ratings that differ by less."""
    assumed = Assumptions("rate", base, 0.3, 0.3, block=20)
    found = means(simulated_ratings(assumed, 4000, 4, np.random.default_rng(0)))
    assert found == pytest.approx([base, base + 0.3], abs=0.03)


def test_any_share_of_a_comparison_can_be_planned_for() -> None:
    assert Assumptions("compare", 0.5, 0.6, 0.3).difference == 0.6, "80 to 20"
    with pytest.raises(UsageError, match="expected both systems between 0 and 1"):
        Assumptions("compare", 0.5, 1.0, 0.3)
