"""Recipes by name: those that ship with the package need no path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Cli

from tellapart.errors import UsageError
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import SHIPPED, descriptions, find_recipe, shipped


def test_a_recipe_is_found_by_name_and_by_the_path_it_had_in_the_repository() -> None:
    expected = SHIPPED / "scenes_smile.toml"
    for name in ("scenes_smile", "scenes_smile.toml", "recipes/scenes_smile.toml"):
        assert find_recipe(name).samefile(expected)
    assert find_recipe("papers/smile_blip_coco") == SHIPPED / "papers" / "smile_blip_coco.toml"


def test_a_file_of_the_user_comes_before_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenes_smile.toml").write_text("name = 'mine'")
    assert find_recipe("scenes_smile.toml") == Path("scenes_smile.toml")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'scenes_smile'"):
        find_recipe("scenes_smil")


def test_a_recipe_of_the_user_may_start_from_a_shipped_one(tmp_path: Path) -> None:
    text = (SHIPPED / "scenes_sr_l.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('name = "scenes"', 'name = "scenes_mle.toml"', 1))
    recipe = read_recipe(tmp_path / "mine.toml")
    assert recipe.captioner is not None and recipe.captioner.name == str(SHIPPED / "scenes_mle.toml")


def test_every_shipped_recipe_is_listed_with_one_line(cli: Cli) -> None:
    assert all(about and "\n" not in about for _, about in descriptions())
    done = cli("recipes", "--json")
    assert [row["name"] for row in json.loads(done.out)["recipes"]] == list(shipped())
    assert "papers/smile_blip_coco" in cli("recipes").out


def test_show_prints_the_file_and_refuses_an_unknown_name(cli: Cli) -> None:
    assert cli("recipes", "show", "scenes_smile").out == (SHIPPED / "scenes_smile.toml").read_text()
    assert "no included recipe is named 'nothing'; run tellapart recipes" in cli("recipes", "show", "nothing").line


def test_train_takes_a_name(cli: Cli) -> None:
    assert "unknown recipe 'scenes_smil'; expected a" in cli("train", "scenes_smil").line
