"""Rewards of claims and of calibration: formulas, verifiers, and recipes that train with them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tellapart.captioners import load_captioner
from tellapart.errors import UsageError
from tellapart.language.claim_tuples import claims_of
from tellapart.language.distinct_claims import confidences, judged_by_references
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.rewards.calibration import Calibration, brier_rewards
from tellapart.rewards.claims import ClaimReward, claim_reward
from tellapart.scenes import Scenes
from tellapart.scenes.marked_captions import mark_caption
from tellapart.scenes.stated_claims import judged_by_scene
from tellapart.training.runs import train
from tellapart.types import Batch, Item, Rollout

pytest.importorskip("HanTa")


def literal(a: int, D: int, eps: float, alpha: float, kappa: float, D_max: int) -> float:
    right = eps + (1 - eps) * (1 - a / D) ** alpha
    return right * math.exp(-a / kappa) * (0.7 + 0.3 * min(1, math.log(1 + D) / math.log(1 + D_max)))


def test_the_reward_is_its_formula() -> None:
    for D in range(1, 15):
        for a in range(D + 1):
            assert claim_reward(a, D) == pytest.approx(literal(a, D, 0.05, 2, 4, 10))
            other = claim_reward(a, D, epsilon=0.2, alpha=0.5, kappa=1.5, most_claims=4)
            assert other == pytest.approx(literal(a, D, 0.2, 0.5, 1.5, 4))
    assert claim_reward(0, 10) == claim_reward(0, 12) == pytest.approx(1.0) and claim_reward(0, 0) == 0.0


def batch_of(items: list[Any], samples: list[list[str]]) -> tuple[Rollout, Batch]:
    texts = [text for each in samples for text in each]
    tokens_RT = torch.zeros(len(texts), 1, dtype=torch.long)
    rollout = Rollout(tokens_RT, torch.ones_like(tokens_RT).bool(), texts, len(samples[0]))
    return rollout, Batch(items, torch.arange(len(items)), torch.zeros(len(items), 1))


def test_the_truth_of_a_scene_counts_wrong_claims() -> None:
    scenes = Scenes(3, split="train")
    items = [Item(str(n), scene, (), truth=scene) for n, scene in enumerate(scenes)]  # type: ignore[arg-type]
    texts = [[f"a {scene.objects[0].colour} {scene.objects[0].shape}", "a red ball on sand", ""] for scene in scenes]
    reward = ClaimReward(ClaimReward.Config(kind="claims", verifier="truth"))
    reward_BS = reward(*batch_of(items, texts))
    for b, each in enumerate(texts):
        for s, text in enumerate(each):
            marked = mark_caption(text, scenes[b])
            expected = claim_reward(marked.claims - marked.correct, marked.claims)
            assert float(reward_BS[b, s]) == pytest.approx(expected)
    assert reward_BS[:, 2].tolist() == [0.0] * 3 and len(set(reward_BS.flatten().tolist())) > 2


class Told:
    """Stands for the start model's samples, which are drawn by a captioner elsewhere in this file."""

    decoding = Decoding(kind="sample", samples=4)

    def __init__(self, pool: list[str]) -> None:
        self.pool = pool

    def __call__(self, batch: Batch) -> list[str]:
        return self.pool


def test_without_truth_a_claim_is_wrong_that_too_few_samples_make() -> None:
    pool = ["a red ball", "a red ball", "a ball", "grass", "two cats", "two cats", "two cats", "a dog"]
    shares = confidences([claims_of(text) for text in pool[:4]])
    assert shares["object", ("ball",)] == 0.75 and shares["attribute", ("ball", "red")] == 0.5
    items = [Item("a", None), Item("b", None)]  # type: ignore[arg-type]
    rollout, batch = batch_of(items, [["a red ball", "a red cat"], ["a dog", "two cats"]])
    reward = ClaimReward(ClaimReward.Config(kind="claims", least_share=0.6), Told(pool))  # type: ignore[arg-type]
    assert reward.counts(rollout, batch) == [(1, 2), (2, 2), (1, 1), (0, 2)]
    expected = [[literal(a, D, 0.05, 2, 4, 10) for a, D in pairs] for pairs in ([(1, 2), (2, 2)], [(1, 1), (0, 2)])]
    assert torch.allclose(reward(rollout, batch), torch.tensor(expected))


def test_brier_rewards_are_the_mean_over_a_captions_claims() -> None:
    """q by hand: ball is in 3 of 4 samples, red in 2, cat in 1."""
    samples = [{"ball": True, "red": False}, {"ball": True}, {"ball": True, "red": False, "cat": False}, {}]
    ball, red, cat = -((0.75 - 1) ** 2), -(0.5**2), -(0.25**2)
    expected = [(ball + red) / 2, ball, (ball + red + cat) / 3]
    found = brier_rewards(samples)  # type: ignore[arg-type]
    assert found[:3] == pytest.approx(expected) and math.isnan(found[3])


def test_claims_are_true_by_references_or_by_the_scene() -> None:
    judged = judged_by_references("a red ball on grass", ["a red ball", "green grass"])
    assert judged[("attribute", ("ball", "red"))] and judged[("object", ("grass",))]
    assert not judged[("relation", ("ball", "on", "grass"))]
    scene = Scenes(1, split="train")[0]
    thing = scene.objects[0]
    right, wrong = f"a {thing.colour} {thing.shape}", "a purple unicorn"
    assert set(judged_by_scene(right, scene).values()) == {True}
    mixed = judged_by_scene(f"{right} and a {'red' if thing.colour != 'red' else 'blue'} {thing.shape}", scene)
    assert set(mixed.values()) <= {True, False} and judged_by_scene(wrong, scene) is not None
    rollout, batch = batch_of([Item("0", scene, ("a red ball",), truth=scene)], [["a red ball", "grass", ""]])  # type: ignore[arg-type]
    reward_BS = Calibration("references")(rollout, batch)
    q = 1 / 3  # each claim is made once
    assert reward_BS[0, :2].tolist() == pytest.approx([-((q - 1) ** 2), -(q**2)]) and bool(reward_BS[0, 2].isnan())


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"kind": "claims", "verifier": "truth", "least_share": 0.5}, "decoding and least_share require verifier ="),
        (
            {"kind": "claims", "decoding": {"kind": "greedy"}},
            "decoding is greedy with samples = 1; a consensus needs at least 2 samples",
        ),
        (
            {"kind": "claims", "decoding": {"kind": "sample", "samples": 3, "confidence": 0.5}},
            "decoding.confidence edits captions, but the",
        ),
    ],
)
def test_settings_without_an_effect_are_refused(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        ClaimReward.Config(**table)


def test_needs_follow_the_verifier() -> None:
    assert ClaimReward.Config(kind="claims").needs() == ("start",)
    assert ClaimReward.Config(kind="claims", verifier="truth").needs() == ("truth",)
    assert Calibration.Config(kind="calibration").needs() == ("references",)
    assert Calibration.Config(kind="calibration", verifier="truth").needs() == ("truth",)


@pytest.mark.parametrize(
    "reward",
    [
        {"kind": "claims", "verifier": "truth"},
        {"kind": "claims", "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6}},
        {"kind": "calibration", "verifier": "truth"},
        {"kind": "calibration"},
    ],
    ids=["claims-truth", "claims-consensus", "calibration-truth", "calibration-references"],
)
def test_a_recipe_trains_with_it(tiny_recipe: dict[str, Any], tmp_path: Path, reward: dict[str, Any]) -> None:
    decoding = {"kind": "sample", "samples": 3, "max_tokens": 6}
    table = {**tiny_recipe["objective"], "decoding": decoding, "baseline": "leave_one_out", "rewards": [reward]}
    training = {**tiny_recipe["training"], "steps": 2}
    train(check_recipe({**tiny_recipe, "objective": table, "training": training}, "test"), tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [line for line in log if "loss" in line]
    assert len(steps) >= 2 and all(math.isfinite(line["reward"]) for line in steps)


def test_the_samples_behind_the_consensus_are_the_start_models(tiny_captioner: Path) -> None:
    captioner = load_captioner(str(tiny_captioner), precision="fp32")
    scenes = Scenes(2, split="train")
    with torch.no_grad():
        visual = captioner.encode(captioner.pixels([scene.image() for scene in scenes]))
    items = [Item(str(n), None) for n in range(2)]  # type: ignore[arg-type]
    batch = Batch(items, torch.arange(2), visual)
    cfg = ClaimReward.Config(kind="claims", decoding={"kind": "sample", "samples": 3, "max_tokens": 6})  # type: ignore[arg-type]
    parts: Any = type("Parts", (), {"start": staticmethod(lambda: captioner), "vision_learns": False})()
    reward = cfg.build(parts)
    assert isinstance(reward, ClaimReward) and reward.samples is not None
    pool = reward.samples(batch)
    assert len(pool) == 6
    rollout, _ = batch_of(items, [[pool[0]], [pool[3]]])
    assert [wrong for wrong, _ in reward.counts(rollout, batch)] == [0, 0]  # a sample's claims are among the samples'
    assert set(claims_of("a dog")) == {("object", ("dog",))}


def test_photos_have_no_truth(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    scene = Scenes(1, split="train")[0]
    scene.image().save(tmp_path / "a.png")
    (tmp_path / "photos.jsonl").write_text(
        json.dumps({"image": "a.png", "captions": ["a ball"], "split": "train"}) + "\n"
    )
    data = {**tiny_recipe["data"], "train": f"jsonl:{tmp_path / 'photos.jsonl'}?split=train"}
    table = {**tiny_recipe["objective"], "rewards": [{"kind": "claims", "verifier": "truth"}]}
    with pytest.raises(UsageError, match="truth"):
        train(check_recipe({**tiny_recipe, "data": data, "objective": table}, "test"), tmp_path / "run")
