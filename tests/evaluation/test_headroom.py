"""What a captioner knows against what it says: claims, their confidence, and the curve."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from tellapart.captioners import load_captioner
from tellapart.errors import UsageError
from tellapart.evaluation.headroom import Headroom, measure_headroom
from tellapart.evaluation.headroom_claims import ConfidentClaim
from tellapart.features.store import FeatureStore
from tellapart.scenes import Scenes
from tellapart.types import Item, Rollout


def headroom(known: list[tuple[int, bool, float]], said: list[tuple[int, bool, float]], facts: list[int]) -> Headroom:
    return Headroom(
        tuple(ConfidentClaim(*c) for c in known),
        tuple(ConfidentClaim(*c) for c in said),
        np.array(facts, dtype=float),
        "hand",
    )


def test_the_curve_by_hand() -> None:
    """Ranked by confidence: true, true, false, true; six facts."""
    found = headroom(
        [(0, False, -0.5), (0, True, -0.1), (1, True, -0.2), (1, True, -0.9)], [(0, True, -0.1)], [2, 4]
    )  # fmt: skip
    precision, recall = found.curve()
    assert precision == pytest.approx([100, 100, 200 / 3, 75])
    assert recall == pytest.approx([100 / 6, 200 / 6, 200 / 6, 300 / 6])
    assert found.recall_at(100)[0] == pytest.approx(200 / 6) and found.recall_at(75)[0] == pytest.approx(50)
    greedy = found.greedy()
    assert greedy.precision[0] == 100 and greedy.recall[0] == pytest.approx(100 / 6)
    assert json.loads(json.dumps(found.to_json()))["at_greedy_precision"]["value"] == pytest.approx(33.33)


def test_a_captioner_that_claims_nothing() -> None:
    found = headroom([], [], [3, 3])
    assert found.recall_at(50) == (0, 0, 0) and found.to_json()["curve"] == []


class Writes:
    """Writes given captions; the words of the last one are improbable."""

    gaps: Sequence[int] = ()

    def __init__(self, texts: list[str]) -> None:
        real = load_captioner("scenes", "cpu", "fp32")
        self.texts, self.tokenizer, self.model, self.device = texts, real.tokenizer, real.model, real.device
        self.pad, self.rows = real.pad, real.tokenize(texts)

    def generate(self, visual: torch.Tensor, decoding: object, seeds: object = None) -> Rollout:
        samples = getattr(decoding, "samples", 1)
        chosen = self.rows[:1] if samples == 1 else self.rows[:samples]
        tokens, valid = self.pad(chosen * len(visual))
        return Rollout(tokens, valid.bool(), self.texts[: len(chosen)] * len(visual), len(chosen))

    def head(self) -> None:
        return None  # `hidden` returns logits

    def hidden(self, visual: torch.Tensor, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        right = torch.nn.functional.one_hot(tokens, len(self.tokenizer)).float()
        return right * torch.tensor([9.0, 9.0, 5.0]).repeat(len(tokens) // 3 or 1)[: len(tokens), None, None]


def test_claims_by_the_scene_and_by_references() -> None:
    """A true wording, one of another object, and one that no reference has; each once, by what it states."""
    scene = Scenes(40, split="test")[3]
    thing, other = (
        scene.objects[0],
        next(c for c in ("red", "blue", "green") if c not in {o.colour for o in scene.objects}),
    )
    texts = [f"a {thing.shape}", f"a {thing.colour} {thing.shape}", f"a {other} {thing.shape}"]
    captioner = Writes(texts)
    by_scene = measure_headroom(captioner, [scene.item()], np.zeros((1, 16, 192), np.float32), samples=3)  # type: ignore[arg-type]
    assert by_scene.facts_N[0] == 5 * len(scene.objects)
    assert [claim.true for claim in sorted(by_scene.known, key=lambda c: -c.confidence)] == [True, True, False]
    assert len(by_scene.of_greedy) == 1
    item = Item("x", scene, (f"one {thing.shape} seen",), "test")
    by_words = measure_headroom(captioner, [item], np.zeros((1, 16, 192), np.float32), samples=3)  # type: ignore[arg-type]
    assert sorted(claim.true for claim in by_words.known) == [False, False, True]
    with pytest.raises(UsageError, match="x has no reference"):
        measure_headroom(captioner, [Item("x", scene, (), "test")], np.zeros((1, 16, 192), np.float32))  # type: ignore[arg-type]


def test_the_shipped_captioner_knows_more_than_it_says() -> None:
    items = [scene.item() for scene in Scenes(60, split="test", seed=5)]
    captioner = load_captioner("scenes", "cpu", "fp32")
    visual = FeatureStore().features(items, captioner.encoder)
    captioner.model.train()
    found = measure_headroom(captioner, items, visual, samples=8)
    assert captioner.model.training, "the model stays in the mode in which it came"
    greedy = found.greedy()
    assert greedy.precision[0] > 80 and found.recall_at(80)[0] > greedy.recall[0] + 5
    assert all(claim.confidence <= 0 for claim in found.known)
