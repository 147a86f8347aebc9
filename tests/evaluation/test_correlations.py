"""Rank correlations against the definition in plain loops and against scipy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tellapart.evaluation.human_judgements.agreement import kendall_tau, pair_accuracy, spearman


def plain_counts(x: np.ndarray, y: np.ndarray) -> tuple[int, int, int, int]:
    """Concordant, discordant, tied in x, tied in y: over all pairs."""
    concordant = discordant = tied_x = tied_y = 0
    for i, j in combinations(range(len(x)), 2):
        way = np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])
        concordant, discordant = concordant + (way > 0), discordant + (way < 0)
        tied_x, tied_y = tied_x + (x[i] == x[j]), tied_y + (y[i] == y[j])
    return concordant, discordant, tied_x, tied_y


@pytest.fixture(params=range(5))
def ratings(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(request.param)
    rating = rng.integers(1, 5, 60).astype(float)
    score = np.round(rating + rng.normal(0, 2, 60), request.param % 2)  # with and without many ties
    return score, rating


def test_kendall_is_the_count_of_pairs(ratings: tuple[np.ndarray, np.ndarray]) -> None:
    score, rating = ratings
    concordant, discordant, tied_x, tied_y = plain_counts(score, rating)
    total = 60 * 59 / 2
    assert kendall_tau(score, rating, "b") == pytest.approx(
        (concordant - discordant) / np.sqrt((total - tied_x) * (total - tied_y))
    )
    assert kendall_tau(score, rating, "c") == pytest.approx(2 * (concordant - discordant) / (60**2 * 3 / 4))
    assert kendall_tau(rating, score, "b") == pytest.approx(kendall_tau(score, rating, "b"))


def test_correlations_are_those_of_scipy(ratings: tuple[np.ndarray, np.ndarray]) -> None:
    stats = pytest.importorskip("scipy.stats")
    score, rating = ratings
    for variant in "bc":
        assert kendall_tau(score, rating, variant) == pytest.approx(
            stats.kendalltau(score, rating, variant=variant).statistic
        )
    assert spearman(score, rating) == pytest.approx(stats.spearmanr(score, rating).statistic)


def test_without_variation_there_is_no_number() -> None:
    constant, rising = np.ones(4), np.arange(4.0)
    assert np.isnan([*(kendall_tau(constant, rising, variant) for variant in "bc"), spearman(constant, rising)]).all()
    assert kendall_tau(rising, -rising, "b") == spearman(rising, -rising) == -1


def test_a_tie_is_half_a_right_answer() -> None:
    assert pair_accuracy(np.array([2.0, 1.0, 0.0, 5.0]), np.array([1.0, 1.0, 3.0, 4.0]), np.ones(4)) == 0.625
    assert pair_accuracy(np.array([2.0, np.nan, 0.0]), np.array([1.0, 1.0, 3.0]), np.array([1, 5, 3])) == 0.25
