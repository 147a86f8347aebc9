"""The rule on numbers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from replication.bootstrap import (
    PartResult,
    Statistic,
    compare_with_bounds,
    ratio_statistic,
    resample_weights,
    verdict,
    weighted_statistic,
)


def of(*means: float, spread: float = 0.0, n: int = 40) -> list[Statistic]:
    """One statistic for each seed with exactly these means over n pictures."""
    wave_N = np.tile([spread, -spread], n // 2)
    return [ratio_statistic("p", mean + wave_N) for mean in means]


def difference(high: list[Statistic], low: list[Statistic], lower: float = 0.0, upper: float = math.inf) -> PartResult:
    return compare_with_bounds("x", [(1.0, high), (-1.0, low)], lower, upper)


def test_signs_that_agree_and_an_interval_off_zero_hold() -> None:
    found = difference(of(5, 6, 7), of(4, 4, 4))
    assert found.holds and found.value == pytest.approx(2) and found.seeds == pytest.approx((1, 2, 3))
    assert 1 <= found.low < 2 < found.high <= 3


def test_one_seed_of_the_other_sign_is_enough_to_fail() -> None:
    assert not verdict([9.0, 9.0, -0.1], 1.0, 9.0, 0.0, math.inf)
    assert not difference(of(5, 6, 3.9), of(4, 4, 4)).holds


def test_the_interval_alone_may_decide() -> None:
    statistics = [(1.0, of(5, 6, 7, 6, 3.9)), (-1.0, of(4, 4, 4, 4, 4))]
    assert not compare_with_bounds("x", statistics).holds
    assert compare_with_bounds("x", statistics, every_seed=False).holds
    assert not compare_with_bounds("x", statistics, lower=1.0, every_seed=False).holds


def test_an_interval_over_zero_fails_though_signs_agree() -> None:
    found = difference(of(0.1, 0.1, 0.1, spread=5.0), of(0, 0, 0))
    assert min(found.seeds) > 0 > found.low and not found.holds


def test_the_interval_is_over_seeds_too() -> None:
    found = difference(of(1, 2, 9), of(0, 0, 0))  # no spread over pictures at all
    assert found.low < 3 and found.high > 6


def test_a_part_that_is_not_a_number_in_a_resample_does_not_hold() -> None:
    rare_N = np.where(np.arange(40) < 3, 5.0, np.nan)  # 1 in 20 resamples has none of the three
    found = compare_with_bounds("x", [(1.0, [ratio_statistic("p", rare_N)])])
    assert found.low > 0 and found.drawn_R is not None and np.isnan(found.drawn_R).any() and not found.holds


def test_one_seed_has_an_interval_over_pictures() -> None:
    found = difference(of(1, spread=1.0), of(0))
    assert found.holds and 0.5 < found.low < 0.9 and 1.1 < found.high < 1.5


def test_pictures_are_drawn_alike_for_all_arms() -> None:
    """Paired: two arms that differ by one on every picture have an interval of no width."""
    noise_N = np.random.default_rng(0).normal(size=50)
    found = compare_with_bounds(
        "x", [(1.0, [ratio_statistic("p", noise_N + 1)]), (-1.0, [ratio_statistic("p", noise_N)])]
    )
    assert found.low == pytest.approx(1) and found.high == pytest.approx(1)
    assert not (resample_weights("p", 50, 5) == resample_weights("q", 50, 5)).all()
    assert (resample_weights("p", 50, 5) == resample_weights("p", 50, 5)).all()  # and in the next run as well


def test_about_equal_needs_the_interval_within_the_margin_and_no_sign() -> None:
    near, zero = of(0.2, -0.3, 0.1), of(0, 0, 0)
    assert difference(near, zero, -1.0, 1.0).holds
    assert not difference(near, zero, -0.15, 0.15).holds
    assert not difference(of(2, 2, 2), zero, -1.0, 1.0).holds


def test_a_bound_from_above_alone() -> None:
    assert difference(of(-1, -2, -3), of(0, 0, 0), -math.inf, 0.0).holds
    assert not difference(of(1, -2, -3), of(0, 0, 0), -math.inf, 0.0).holds


def test_nothing_is_found_in_nan_or_in_no_difference() -> None:
    assert not difference(of(1, 1, 1), of(1, 1, 1)).holds
    assert not verdict([math.nan, 1.0], 0.5, 1.5, 0.0, math.inf)
    assert not verdict([1.0, 1.0], math.nan, math.nan, 0.0, math.inf)


def test_a_ratio_sums_before_it_divides_and_leaves_nan_out() -> None:
    statistic = ratio_statistic("p", np.array([1.0, 3.0, np.nan]), np.array([1.0, 3.0, 5.0]))
    assert statistic.value() == 1.0
    assert ratio_statistic("p", np.array([2.0, 4.0, np.nan])).value() == 3.0
    assert statistic.compute(np.array([[0.0, 0.0, 1.0]]))[0] != statistic.value()  # 0 of 0 is NaN


def test_a_count_of_words_is_not_lower_than_its_interval() -> None:
    """A resample misses words: without centring the interval would lie below the number itself."""
    words = [{n} for n in range(60)]  # every picture has a word of its own

    def count(weight_N: np.ndarray) -> float:
        return float(len(set().union(*(own for own, weight in zip(words, weight_N, strict=True) if weight))))

    found = compare_with_bounds("x", [(1.0, [weighted_statistic("p", 60, count)])])
    assert found.low < found.value == 60 < found.high
