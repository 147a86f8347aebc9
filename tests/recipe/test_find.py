"""Recipes by name: those that ship with the package need no path."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest
from command_line import Cli

from tellapart.errors import UsageError
from tellapart.recipe.reading import SHIPPED, descriptions, find_recipe, read_recipe, shipped


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


@pytest.mark.long
def test_a_wheel_without_the_clone_has_all_that_the_commands_read(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), "."]
    subprocess.run(build, cwd=root, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    run = [sys.executable, "-c", "from tellapart.cli import main; main()"]

    def typed(*arguments: str) -> str:
        done = subprocess.run(
            [*run, *arguments],
            cwd=tmp_path,
            env=alone,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = subprocess.run(
        [sys.executable, "-c", "import tellapart; print(tellapart.__file__)"],
        cwd=tmp_path, env=alone,
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(tmp_path) in where
    assert "scenes_smile" in typed("recipes")
    small = ["data.train=scenes:plain?n=60", "data.validation=scenes:plain?n=120", "data.test=scenes:plain?n=120"]
    settings = [word for setting in ("training.steps=2", *small) for word in ("--set", setting)]
    typed("train", "scenes_smile", *settings, "--out", "run")
    assert (tmp_path / "run" / "report.html").is_file()
    short = ["training.steps=2", *small]
    demo = f"from pathlib import Path; from tellapart.cli import demo; demo.run_demo(Path('demo'), {short!r})"
    done = subprocess.run([sys.executable, "-c", demo], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "report.html").is_file() and "among look-alikes" in done.stderr
    typed("bags", "mine", "scenes:plain?n=30", "--scorer", "scenes", "--size", "3", "-o", "bags.jsonl")
    review = subprocess.Popen(
        [*run, "bags", "review", "bags.jsonl", "--port", "0"],
        cwd=tmp_path,
        env=alone,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert review.stderr is not None
        line = next(line for line in review.stderr if "review them at" in line)
        address = re.search(r"http://\S+", line)
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as page:
            assert b"<script" in page.read()
    finally:
        review.send_signal(signal.SIGINT)
        review.communicate(timeout=60)
