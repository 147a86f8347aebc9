"""Holm's correction and two one-sided tests: by hand, and as statsmodels has them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from replication.bootstrap import compare_with_bounds, ratio_statistic
from replication.claim import Claim, Measurement, about_equal, greater
from replication.multiple import ALPHA, holm_levels, one_sided_p, part_p
from replication.replay import ClaimResult
from tellapart.metrics.holm import holm


def test_holm_by_hand() -> None:
    """0.01·4, 0.02·3, 0.03·2, 0.04·1, each at least the one before."""
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == [] and holm([0.2]) == [0.2]
    assert holm_levels([0.03, 0.01, 0.02], 0.06) == pytest.approx([0.06, 0.02, 0.03])


@pytest.mark.long
def test_holm_as_statsmodels_has_it() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 20):
        p_values = list(rng.uniform(size=size) ** 3)
        reject, adjusted = multitest.multipletests(p_values, alpha=ALPHA, method="holm")[:2]
        assert holm(p_values) == pytest.approx(adjusted)
        assert [p <= ALPHA for p in holm(p_values)] == list(reject)
        # Holm stops at the first that it does not reject, so a level alone may reject more.
        levels = holm_levels(p_values)
        assert all(p <= level for p, level, one in zip(p_values, levels, reject, strict=True) if one)


def test_a_p_value_inverts_the_percentile_interval() -> None:
    drawn_R = np.arange(1, 1000, dtype=float)
    assert one_sided_p(drawn_R, 0.0, above=True) == 1 / 1000 and one_sided_p(drawn_R, 25.0, above=True) == 26 / 1000
    assert one_sided_p(drawn_R, 990.0, above=False) == 11 / 1000
    assert part_p(drawn_R, 25.0, 990.0) == 26 / 1000, "two one-sided tests: the larger"
    assert part_p(drawn_R, -math.inf, 990.0) == 11 / 1000
    assert one_sided_p(np.array([1.0, math.nan]), 0.0, above=True) == 1.0


def test_tost_as_statsmodels_has_it_for_means_of_many() -> None:
    """Against Student's t with 399 degrees of freedom, on differences of the same pictures."""
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(1)
    difference_N = rng.normal(0.3, 8.0, size=400)
    found = compare_with_bounds("x", [(1.0, [ratio_statistic("p", difference_N)])], -0.7, 0.7, resamples=10_000)
    theirs = weightstats.ttost_paired(difference_N, np.zeros(400), -0.7, 0.7)[0]
    assert found.p == pytest.approx(theirs, abs=0.015) and 0.01 < theirs < 0.9
    above = compare_with_bounds("x", [(1.0, [ratio_statistic("p", difference_N)])], 0.0, resamples=10_000)
    one_sided = weightstats.DescrStatsW(difference_N).ttest_mean(0.0, alternative="larger")[1]
    assert above.p == pytest.approx(one_sided, abs=0.015)


def test_a_claim_reports_holm_beside_the_plain_intervals() -> None:
    """The weakest part keeps its interval, the strongest is compared at a third of the level."""
    rng = np.random.default_rng(2)
    waves = [rng.normal(mean, 1.0, size=200) for mean in (0.2, 0.5, 0.15)]
    parts = [compare_with_bounds("x", [(1.0, [ratio_statistic("p", wave)])]) for wave in waves]
    length = Measurement("sr", "length"), Measurement("start", "length")
    declared = (greater("x", *length), greater("x", *length), about_equal("x", *length, 1.0))
    result = ClaimResult(Claim("c", 1, "", "", "", declared), (0,), parts, means=dict.fromkeys(length, 1.0))
    corrected = result.corrected()
    assert [one.p for one in corrected] == pytest.approx(holm([part.p for part in parts]))
    order = np.argsort([part.p for part in parts])
    weakest, strongest = order[-1], order[0]
    assert (corrected[weakest].low, corrected[weakest].high) == (parts[weakest].low, parts[weakest].high)
    assert corrected[strongest].low < parts[strongest].low and corrected[strongest].high > parts[strongest].high
    told = result.to_json()["parts"]
    assert [one["test"] for one in told] == ["one-sided", "one-sided", "tost"]
    assert all({"p", "p_holm", "low_holm", "high_holm", "low", "high"} <= set(one) for one in told)
