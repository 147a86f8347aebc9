"""Code of one's own runs where the command line or an installed package names it, never on a recipe's word alone."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

from tellapart.captioners import load_captioner
from tellapart.errors import TellapartError, UsageError
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.scorers import load_scorer
from tellapart.training.build import TrainingSetup
from tellapart.training.checks import check_setup
from tellapart.training.runs import upstream
from tellapart.utils import allowed_code

ROOT = Path(allowed_code.__file__).parent.parent
CODE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
def captioner(folder=None, model=None):
    from tellapart.captioners import load_captioner
    return load_captioner(folder or model)
def scorer(device):
    from tellapart.scorers import load_scorer
    return load_scorer("scenes", device)
def reward():
    return lambda rollout, batch: rollout.valid_RT.sum(1).view(-1, rollout.samples).float()
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that python can import; the file ``ran`` is beside it once it was."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "evil.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path / "code" / "ran"


@pytest.fixture
def folder(tmp_path: Path, tiny_captioner: Path) -> Path:
    """A model's folder as somebody sends it, which names code."""
    shutil.copytree(tiny_captioner, tmp_path / "sent")
    (tmp_path / "sent" / "tellapart.json").write_text(json.dumps({"made_by": "evil:captioner"}))
    return tmp_path / "sent"


def test_a_folder_that_names_code_is_refused_with_the_option(
    cli: Cli, code: Path, folder: Path, tmp_path: Path
) -> None:
    command = ("caption", folder, "scenes:plain?n=2&split=test", "-o", tmp_path / "c.jsonl", "--max-tokens", 4)
    line = cli(*command).line
    assert (
        "requests to run the code 'evil:captioner'" in line and "add --allow-code evil:captioner to the command" in line
    )
    assert not code.exists()
    (folder / "SHA256SUMS").unlink()  # as one who changes the folder does
    config = folder / "config.json"
    config.write_text(json.dumps({"model_type": "own"}))  # what a captioner of one's own leaves where it has no other
    assert "but only the command line and installed packages may" in cli(*command).line and not code.exists()


def test_the_option_lets_it_run_wherever_it_stands(cli: Cli, code: Path, folder: Path, tmp_path: Path) -> None:
    maker = json.loads((folder / "tellapart.json").read_text())
    (folder / "tellapart.json").write_text(json.dumps(maker))
    pictures = ("scenes:plain?n=2&split=test", "-o", tmp_path / "c.jsonl", "--max-tokens", 4)
    plain = tmp_path / "plain"
    shutil.copytree(folder, plain)
    (plain / "tellapart.json").unlink()
    (tmp_path / "code" / "evil.py").write_text(CODE.replace("folder or model", repr(str(plain))))
    for place in (0, 3):
        words = ["caption", folder, *pictures, "--overwrite"]
        words[place:place] = ["--allow-code", "evil:captioner"]
        done = cli(*words)
        assert done.status == 0, done.err
        assert code.exists() and len((tmp_path / "c.jsonl").read_text().splitlines()) == 2


def test_the_option_wants_a_path(cli: Cli) -> None:
    assert "expected module:factory" in cli("train", "x.toml", "--allow-code", "evil").line
    assert "expected module:factory" in cli("train", "x.toml", "--allow-code").line


CHANGES: dict[str, dict[str, Any]] = {
    "reward": {"objective": {"kind": "reinforce", "rewards": [{"kind": "custom", "reward": "evil:reward"}]}},
    "shell": {
        "objective": {
            "kind": "reinforce",
            "rewards": [{"kind": "custom", "reward": "subprocess:check_output", "options": {"args": ["true"]}}],
        }
    },
    "captioner": {"captioner": {"name": "evil:captioner?model=scenes"}},
    "scorer": {"scorer": {"name": "evil:scorer"}},
    "judge": {"evaluation": {"eval_scorers": ["evil:scorer"]}},
    "reward's scorer": {
        "objective": {"kind": "reinforce", "rewards": [{"kind": "self_retrieval", "scorers": ["evil:scorer"]}]}
    },
    "scorer of bags": {
        "training": {"batches": "bags"},
        "bags": {"kind": "lookalike", "size": 3, "scorer": "evil:scorer"},
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_recipe_that_names_code_is_refused_before_anything_is_loaded(
    name: str, cli: Cli, code: Path, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    table = {**tiny_recipe, "captioner": {"name": "./nowhere"}}
    for key, value in CHANGES[name].items():
        table[key] = {**table.get(key, {}), **value} if key == "training" else value
    recipe = tmp_path / "sent.toml"
    recipe.write_text(to_toml(check_recipe(table, "test")))
    line = cli("train", recipe, "--out", tmp_path / "run").line
    assert "but only the command line and installed packages may" in line and "--allow-code " in line, line
    assert not code.exists() and not (tmp_path / "run").exists()


def test_what_is_typed_as_a_setting_runs(code: Path, tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(to_toml(check_recipe(tiny_recipe, "test")))
    setting = 'objective.rewards=[{kind="custom", reward="evil:reward"}]'
    recipe = read_recipe(tmp_path / "mine.toml", [setting])
    with pytest.raises(UsageError, match="but only the command line and installed packages may"):
        check_setup(TrainingSetup(recipe, upstream))
    allowed_code.allow_named_in(["train", "mine.toml", "--set", setting])
    check_setup(TrainingSetup(recipe, upstream))
    assert code.exists()


def test_words_of_a_command_line() -> None:
    allowed_code.allow_named_in(
        ["--set", 'a=[{reward="my.code:make", x="p/q:r"}]', "https://host:80/x", "own:make?width=3", "a"]
    )
    assert {"my.code:make", "own:make"} <= allowed_code._allowed
    assert not {"q:r", "p/q:r"} & allowed_code._allowed


def test_an_installed_entry_point_needs_no_option(
    code: Path, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the real layout on the path, as pip leaves it."""
    meta = tmp_path / "code" / "evil-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    points = {"captioners": "captioner", "scorers": "scorer", "rewards": "reward"}
    (meta / "entry_points.txt").write_text(
        "\n".join(f"[tellapart.{group}]\nfine = evil:{name}\n" for group, name in points.items())
    )
    assert type(load_captioner("fine?model=scenes")) is type(load_captioner("scenes"))
    assert load_scorer("fine").name == load_scorer("evil:scorer").name == "scenes"
    objective = {"kind": "reinforce", "rewards": [{"kind": "custom", "reward": "fine"}]}
    changes = {"captioner": {"name": "fine?model=scenes"}, "scorer": {"name": "fine"}, "objective": objective}
    setup = TrainingSetup(check_recipe({**tiny_recipe, **changes}, "test"), upstream)
    assert setup.learner and setup.scorer is not None
    with pytest.raises(UsageError, match="no installed package provides a reward 'fien'; did you mean 'fine'"):
        objective["rewards"][0]["reward"] = "fien"  # type: ignore[index]
        check_setup(TrainingSetup(check_recipe({**tiny_recipe, "objective": objective}, "test"), upstream))


def test_every_loader_of_transformers_is_told_to_run_no_code() -> None:
    """``trust_remote_code=False`` stands in every call; left out, transformers asks at the terminal."""
    bare, calls = [], 0
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "from_pretrained"
                and ast.unparse(node.func.value) != "PeftModel"  # loads weights beside a model that is there
            ):
                calls += 1
                written = {k.arg: ast.unparse(k.value) for k in node.keywords}
                if written.get("trust_remote_code") != "False":
                    bare.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert calls > 10 and not bare


def test_a_folder_with_code_of_its_own_for_transformers_is_one_line(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("asked at the terminal"))
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "brand_new", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}})
    )
    shutil.copy(tmp_path / "code" / "evil.py", tmp_path / "evil.py")
    for load in (load_captioner, load_scorer):
        with pytest.raises(TellapartError, match="requires its own code, which tellapart does"):
            load(str(tmp_path))
    assert not code.exists() and not (tmp_path / "ran").exists()
