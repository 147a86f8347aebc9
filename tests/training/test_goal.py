"""`validation.until`: a number, or what another run reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.training.goal import goal_of
from tellapart.training.runs import train


def test_the_goal_of_a_run_is_the_best_that_its_validations_logged(tmp_path: Path) -> None:
    recalls = (70.5, 86.0, 84.2)
    records = [
        {"event": "validation", "step": 10 * n, "recall@1.random100": value, "loss": n}
        for n, value in enumerate(recalls)
    ]
    lines = [json.dumps(record) for record in [{"step": 1, "reward": 99.0}, *records]]
    (tmp_path / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    recipe = read_recipe(find_recipe("scenes_smile"), [f"validation.until={tmp_path}"])
    assert goal_of(recipe.validation.until, "recall@1.random100") == 86.0
    assert goal_of(recipe.validation.until, "loss") == 0
    assert goal_of(recipe.validation.until, "step") == 20
    assert goal_of(86.1, "loss") == 86.1 and goal_of(None, "loss") is None
    with pytest.raises(UsageError, match="contains no validation of cider; train that run first"):
        goal_of(recipe.validation.until, "cider")
    with pytest.raises(UsageError, match=r"validation.until must be a number or the folder"):
        goal_of(str(tmp_path / "none"), "loss")


def test_the_goal_ignores_values_that_are_not_finite_and_the_line_that_a_kill_cut(tmp_path: Path) -> None:
    """`Run.log` writes NaN as it is; a killed run can leave part of a line, which only resuming removes."""
    (tmp_path / "log.jsonl").write_text(
        '{"event": "validation", "step": 0, "cider": NaN, "loss": NaN}\n'
        '{"event": "validation", "step": 5, "cider": 80.5, "loss": 2.5}\n'
        '{"event": "validation", "step": 10, "cid'
    )
    assert goal_of(str(tmp_path), "cider") == 80.5 and goal_of(str(tmp_path), "loss") == 2.5
    (tmp_path / "log.jsonl").write_text('{"event": "validation", "step": 0, "cider": NaN}\n')
    with pytest.raises(UsageError, match="contains no validation of cider; train that run first"):
        goal_of(str(tmp_path), "cider")


def test_the_goal_may_be_a_recipe_which_is_trained_first(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = {**tiny_recipe, "training": {**tiny_recipe["training"], "steps": 2}, "validation": {"select": "step"}}
    (tmp_path / "first.toml").write_text(to_toml(check_recipe({**table, "name": "first"}, "test")))
    second = {**table, "training": {**table["training"], "steps": 4}}
    second["validation"] = {"select": "step", "every": 2, "until": str(tmp_path / "first.toml")}
    run = train(check_recipe(second, "test"), tmp_path / "second", evaluate=False)
    last = json.loads(run.log_path.read_text().splitlines()[-1])
    assert last == {"event": "reached", "step": 2}
