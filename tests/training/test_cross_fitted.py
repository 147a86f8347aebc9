"""Scorers of parts of the data: each picture is rewarded by those that never saw it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tellapart.errors import UsageError
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.self_distillation import SelfDistillation
from tellapart.recipe.reading import check_recipe, to_toml
from tellapart.rewards.several_scorers import LowestUnseen
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of, trained_on
from tellapart.training.runs import train, upstream
from tellapart.types import Rollout

SPEC = "scenes:plain?n=60&split=train"


def scorer_recipe(tiny_recipe: dict[str, Any], folder: Path, part: str) -> str:
    """A file with the recipe of a scorer that learns from one part of the pictures."""
    name = f"part_{part.replace(',', '_')}"
    table = {
        "name": name,
        "data": {"train": f"{SPEC}&part={part}/3", "validation": tiny_recipe["data"]["validation"]},
        "seed": sum(map(int, part.split(","))),
        "scorer": {"new": {"image_size": 32, "width": 4, "text_width": 16, "text_layers": 1, "projection": 16}},
        "objective": {"kind": "contrastive"},
        "training": {"steps": 2, "batch_size": 10, "learning_rate": 1e-2},
    }
    file = folder / f"{name}.toml"
    file.write_text(to_toml(check_recipe(table, "test")))
    return str(file)


def setup_of(tiny_recipe: dict[str, Any], objective: dict[str, Any]) -> TrainingSetup:
    return TrainingSetup(check_recipe({**tiny_recipe, "objective": objective}, "test"), upstream)


@pytest.fixture
def scorers(tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return [scorer_recipe(tiny_recipe, tmp_path, part) for part in ("1", "2", "3")]


def reinforced(scorers: list[str]) -> dict[str, Any]:
    reward = {"kind": "self_retrieval", "scorers": scorers, "combine": "lowest"}
    return {"kind": "reinforce", "decoding": {"kind": "sample", "samples": 2, "max_tokens": 6}, "rewards": [reward]}


@pytest.mark.long
def test_each_picture_is_rewarded_by_the_lowest_of_those_that_never_saw_it(
    tiny_recipe: dict[str, Any], scorers: list[str]
) -> None:
    setup = setup_of(tiny_recipe, reinforced(scorers))
    objective, batch = objective_of(setup), setup.training_set().batch(0)
    assert isinstance(objective, Reinforce)
    reward = objective.terms[0].reward
    assert isinstance(reward, LowestUnseen)
    seen_KN = np.stack([trained_on(setup, name) for name in scorers])
    assert seen_KN.sum(0).tolist() == [1] * 60 and seen_KN.sum(1).tolist() == [20] * 3
    assert np.array_equal(trained_on(setup, f"{upstream(scorers[0])}/model"), seen_KN[0]), "the model of a run, too"
    texts = [f"a {word} shape" for word in ("red", "blue") for _ in range(len(batch.rows_B))]
    rollout = Rollout(torch.ones(len(texts), 2, dtype=torch.long), torch.ones(len(texts), 2).bool(), texts, 2)
    each_KBS = torch.stack([one(rollout, batch) for one in reward.rewards])
    found_BS = reward(rollout, batch)
    assert not torch.equal(each_KBS[0], each_KBS[1])
    for place, row in enumerate(batch.rows_B.tolist()):
        unseen = [k for k in range(3) if not seen_KN[k, row]]
        assert len(unseen) == 2
        assert found_BS[place].tolist() == each_KBS[unseen, place].amin(0).tolist()


@pytest.mark.long
def test_a_run_of_each_kind_trains(tiny_recipe: dict[str, Any], scorers: list[str], tmp_path: Path) -> None:
    short = {"training": {**tiny_recipe["training"], "steps": 2}}
    distilled = {"kind": "self_distillation", "scorers": scorers, "candidates": 4, "likelihood": 0.1}
    for objective in (reinforced(scorers), distilled):
        recipe = check_recipe({**tiny_recipe, **short, "objective": objective}, "test")
        assert train(recipe, tmp_path / objective["kind"], evaluate=False).trained


@pytest.mark.long
def test_the_least_sure_scorer_counts_in_self_distillation(tiny_recipe: dict[str, Any], scorers: list[str]) -> None:
    setup = setup_of(tiny_recipe, {"kind": "self_distillation", "scorers": scorers, "nearest": 3})
    objective = objective_of(setup)
    assert isinstance(objective, SelfDistillation) and objective.listener is not None
    listener, rows_B = objective.listener, np.array([4, 17])
    heard = listener.logits(listener.among(rows_B), [["a red star", "a heart"], ["a star"]])
    assert [tuple(one_KMC.shape) for one_KMC in heard] == [(2, 4, 2), (2, 4, 1)]
    for row, one_KMC in zip(rows_B, heard, strict=True):
        unseen = [k for k, name in enumerate(scorers) if not trained_on(setup, name)[row]]
        for k, logit_MC in zip(unseen, one_KMC, strict=True):
            scorer, features_ND = listener.scorers[k]
            text_D = scorer.text_features(["a red star" if row == 4 else "a star"])[0]
            expected = scorer.scale * float(torch.from_numpy(features_ND[row]) @ text_D)
            assert float(logit_MC[0, 0]) == pytest.approx(expected, abs=1e-4)


def test_a_picture_that_every_scorer_has_seen_is_named(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    both = [scorer_recipe(tiny_recipe, tmp_path, part) for part in ("1,2", "2,3")]
    with pytest.raises(
        UsageError, match=r"20 of 60 training pictures, such as .*were in the training data of every scorer"
    ):
        objective_of(setup_of(tiny_recipe, reinforced(both)))


def test_of_a_model_without_a_run_nobody_knows_what_it_saw(tiny_recipe: dict[str, Any]) -> None:
    setup = setup_of(tiny_recipe, tiny_recipe["objective"])
    assert not trained_on(setup, tiny_recipe["scorer"]["name"]).any()
