"""`validation.until`: a number, or what another run reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tellapart.errors import UsageError
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.training.validation import goal_of


def test_the_goal_of_a_run_is_the_best_that_its_validations_logged(tmp_path: Path) -> None:
    recalls = (70.5, 86.0, 84.2)
    records = [{"event": "validation", "recall@1.random100": value, "loss": n} for n, value in enumerate(recalls)]
    lines = [json.dumps(record) for record in [{"step": 1, "reward": 99.0}, *records]]
    (tmp_path / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    recipe = read_recipe(find_recipe("scenes_smile"), [f"validation.until={tmp_path}"])
    assert goal_of(recipe.validation.until, "recall@1.random100") == 86.0
    assert goal_of(recipe.validation.until, "loss") == 0
    assert goal_of(86.1, "loss") == 86.1 and goal_of(None, "loss") is None
    with pytest.raises(UsageError, match="contains no validation of cider; train that run first"):
        goal_of(recipe.validation.until, "cider")
    with pytest.raises(UsageError, match=r"validation.until must be a number or the folder"):
        goal_of(str(tmp_path / "none"), "loss")
