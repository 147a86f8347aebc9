"""Power by simulation: against the rule itself, against normal theory, and of arms that were trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from replication.bootstrap import Statistic, compare_with_bounds, ratio_statistic
from replication.claim import Arm, Claim, Control, Measurement, Part, about_equal, greater
from replication.lab import Lab
from replication.power import (
    Variation,
    detectable,
    estimate,
    fewest,
    measure_power,
    needed_text,
    power_record,
    power_table,
    semidefinite,
    simulate,
    untrained,
    variation,
)
from replication.replay import replay
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding

ABOVE = (0.0, math.inf)


def spread(seeds: float, shared: float = 0.0, own: float = 0.0, parts: int = 1, correlation: float = 0.0) -> Variation:
    """SDs of each of ``parts`` parts, with the same correlation everywhere."""
    matrix_PP = np.full((parts, parts), correlation) + (1 - correlation) * np.eye(parts)
    return Variation(
        np.zeros(parts), seeds**2 * matrix_PP, shared**2 * matrix_PP, own**2 * matrix_PP, np.full(parts, 100)
    )


def test_the_sign_rule_is_normal_theory() -> None:
    """Seeds alone, five of them: the sign rule decides, and each seed keeps its sign with Φ(effect / SD)."""
    holds = simulate(np.array([2.0]), spread(1.0), [ABOVE], 5, trials=20_000)
    assert holds.mean() == pytest.approx(NormalDist().cdf(2.0) ** 5, abs=0.01)


def test_pictures_alone_are_a_z_test() -> None:
    """No spread over seeds: P(z > 1.96 − effect / SD), whatever the number of seeds."""
    for pictures in (1, 4):
        found = simulate(np.array([2.0]), spread(0.0, shared=1.0), [ABOVE], 5, pictures, trials=20_000).mean()
        assert found == pytest.approx(1 - NormalDist().cdf(1.96 - 2.0 * math.sqrt(pictures)), abs=0.03)


def test_correlated_parts_are_found_together_more_often() -> None:
    truth, bounds = np.full(4, 1.5), [ABOVE] * 4
    apart = simulate(truth, spread(1.0, parts=4), bounds, 5, trials=5_000).all(1).mean()
    together = simulate(truth, spread(1.0, parts=4, correlation=0.95), bounds, 5, trials=5_000).all(1).mean()
    alone = simulate(truth[:1], spread(1.0), bounds[:1], 5, trials=20_000).mean()
    assert apart == pytest.approx(alone**4, abs=0.03) and apart + 0.1 < together < alone + 0.02


def test_the_simulation_is_the_rule_on_real_bootstraps() -> None:
    """300 verdicts of four seeds and 60 pictures by `compare_with_bounds`, against as many simulated ones."""
    rng, seeds, pictures, found = np.random.default_rng(3), 4, 60, []
    seed_sd, shared_sd, own_sd, truth = 0.5, 2.0, 2.0, 1.0
    for trial in range(300):
        both_N = rng.normal(0, shared_sd, size=pictures)
        statistics = [
            ratio_statistic(f"{trial}", truth + rng.normal(0, seed_sd) + both_N + rng.normal(0, own_sd, size=pictures))
            for _ in range(seeds)
        ]
        found.append(compare_with_bounds("x", [(1.0, statistics)], resamples=300).holds)
    scale = math.sqrt(pictures)
    simulated = simulate(np.array([truth]), spread(seed_sd, shared_sd / scale, own_sd / scale), [ABOVE], seeds)
    assert 0.4 < np.mean(found) < 0.95 and simulated.mean() == pytest.approx(np.mean(found), abs=0.07)


def test_variation_is_split_into_seeds_shared_pictures_and_own_pictures() -> None:
    """Many seeds and resamples with known SDs of two parts, correlated over pictures."""
    rng, seeds, resamples = np.random.default_rng(4), 40, 4_000
    mixing_PP = np.array([[1.0, 0.0], [0.6, 0.8]])
    shared_RP = rng.normal(0, 1.5, size=(resamples, 2)) @ mixing_PP.T
    own_SRP = rng.normal(0, 0.7, size=(seeds, resamples, 2)) @ mixing_PP.T
    value_SP = 5 + rng.normal(0, math.hypot(1.0, 0.7), size=(seeds, 2))
    found = variation(value_SP, shared_RP + own_SRP, np.array([100, 100]))
    assert np.sqrt(np.diag(found.shared_PP)) == pytest.approx([1.5, 1.5], rel=0.05)
    assert np.sqrt(np.diag(found.own_PP)) == pytest.approx([0.7, 0.7], rel=0.05)
    assert np.sqrt(np.diag(found.seeds_PP)) == pytest.approx([1.0, 1.0], rel=0.35)
    assert found.shared_PP[0, 1] == pytest.approx(0.6 * 1.5**2, rel=0.1)
    assert np.linalg.eigvalsh(semidefinite(np.array([[1.0, 2.0], [2.0, 1.0]]))).min() >= -1e-12


def test_the_fewest_seeds_and_pictures_and_what_can_be_found() -> None:
    noisy_pictures = spread(0.05, shared=1.0)
    assert fewest(np.array([3.0]), noisy_pictures, [ABOVE]) == (5, 2)
    assert fewest(np.array([1.0]), spread(1.0), [ABOVE]) is None, "more seeds only make a wrong sign likelier"
    part = Part("x", (Measurement("sr", "r1"),), effect=1.0)
    # Five signs in 98 %: Φ(e)^5 = 0.98, so e = 2.65 SDs.
    assert detectable(part, spread(1.0)) == pytest.approx(NormalDist().inv_cdf(0.98**0.2), rel=0.07)
    assert detectable(part, spread(0.0)) == 0.0
    below = Part("x", (Measurement("sr", "r1"),), lower=-math.inf, upper=5.0, effect=1.0)
    assert detectable(below, spread(1.0)) == pytest.approx(detectable(part, spread(1.0)), rel=0.05)


def test_what_is_not_a_number_in_a_resample_has_no_power() -> None:
    class Rare:
        def statistic(self, measurement: Measurement, seed: int) -> Statistic:
            return ratio_statistic("p", np.where(np.arange(40) < 3, 5.0 + seed, np.nan))

    part = Part("rare words gained", (Measurement("sr", "r1"),), effect=1.0)
    with pytest.raises(UsageError, match="'rare words gained' is not a number"):
        estimate([part], Rare(), (0, 1))  # type: ignore[arg-type]
    assert detectable(part, spread(math.nan)) == math.inf


@pytest.fixture
def tiny_lab(tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path) -> Callable[[], Lab]:
    data = {key: spec for key, spec in tiny_recipe["data"].items() if key != "test"}
    base = {"data": data, "scorer": tiny_recipe["scorer"], "validation": {"every": 2, "decoding": {"max_tokens": 6}},
            "training": {"steps": 2, "batch_size": 20, "learning_rate": 1e-2}}  # fmt: skip
    arms = (
        Arm("start", model=tiny_recipe["captioner"]["name"]),
        Arm("sr", {**base, "objective": tiny_recipe["objective"]}, "start"),
        Arm("mle_more", {**base, "objective": {"kind": "mle"}}, "start"),
    )
    decodings = {"greedy": Decoding(kind="greedy", max_tokens=6)}
    sets = {"plain": "scenes:plain?n=30&split=test"}
    return lambda: Lab(tmp_path / "runs", {arm.name: arm for arm in arms}, sets, decodings, str(tiny_scorer))


@pytest.mark.long
def test_power_of_trained_arms(tiny_lab: Callable[[], Lab]) -> None:
    sr, start = Measurement("sr", "mle-plain"), Measurement("start", "mle-plain")
    parts = (
        greater("loss changed", sr, start, effect=1e-6),
        about_equal("recall within 99", Measurement("sr", "r1"), Measurement("start", "r1"), 99.0),
    )
    claims = [Claim("tiny", 3, "nowhere", "says", "1 → 2", parts, Control("SR replaced", {"sr": "mle_more"}))]
    with pytest.raises(UsageError, match=r"4 of the arms are not trained \(sr, seed 0\); first run: .* --seeds 0,1"):
        measure_power(claims, tiny_lab(), (0, 1))
    with pytest.raises(UsageError, match="the spread over seeds requires at least two"):
        measure_power(claims, tiny_lab(), (0,))
    replay(claims, tiny_lab(), (0, 1))
    lab = tiny_lab()
    assert untrained(claims, lab, (0, 1)) == []
    (found,) = measure_power(claims, lab, (0, 1))
    assert lab.trained == [] and found.parts[1].power == 1.0 and found.parts[1].detectable is None
    assert found.parts[0].sd_pictures > 0 and found.parts[0].pictures == 30
    assert found.power <= min(part.power for part in found.parts)
    ours = replay(claims, lab, (0, 1))[0].parts[0]
    assert found.parts[0].value == pytest.approx(ours.value)
    record = power_record([found], (0, 1), "0a1b2c3d", "python -m replication claims --power")
    assert record["power"][0]["parts"][1]["upper"] == 99.0 and record["settings"] == "0a1b2c3d"
    assert power_table([found]).row_count == 1 and ("seeds" in needed_text(found))
