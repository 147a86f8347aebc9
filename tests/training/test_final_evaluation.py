"""The final evaluation: held-out scorers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.training import final_evaluation
from tellapart.training.runs import train


def test_a_held_out_scorer_is_loaded_once_for_all_test_sets(
    tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, loaded = str(shutil.copytree(tiny_scorer, tmp_path / "judge")), []

    def counted(name: str, *settings: Any) -> Scorer:
        loaded.append(name)
        return load_scorer(name, *settings)

    monkeypatch.setattr(final_evaluation, "load_scorer", counted)
    sets = {name: {"data": f"scenes:plain?n={n}&split=test"} for name, n in (("few", 12), ("more", 20))}
    evaluation = {**tiny_recipe["evaluation"], "gallery": 0, "eval_scorers": [judge], "test_sets": sets}
    training = {**tiny_recipe["training"], "steps": 1}
    recipe = check_recipe({**tiny_recipe, "training": training, "evaluation": evaluation}, "test")
    train(recipe, tmp_path / "run")
    assert loaded == [judge]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    for each in (results, *(results["test_sets"][name] for name in sets)):
        assert any(metric.endswith("@judge") for metric in each["systems"]["after"])


def test_two_held_out_scorers_of_one_name_are_refused_before_training(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    evaluation = {**tiny_recipe["evaluation"], "eval_scorers": [str(tmp_path / "a/judge"), str(tmp_path / "b/judge")]}
    with pytest.raises(UsageError, match=r"evaluation\.eval_scorers contains two scorers named 'judge'; rename one"):
        train(check_recipe({**tiny_recipe, "evaluation": evaluation}, "test"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
