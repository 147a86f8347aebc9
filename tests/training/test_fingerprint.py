"""What a run's result follows from: the same wherever it lies, another where anything that decides it is another."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from PIL import Image
from real_data import DATA
from small_recipes import MLE

from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.recipe.schema import Recipe
from tellapart.training import fingerprint
from tellapart.training.fingerprint import Identities, canonical, content_of
from tellapart.training.runs import train
from tellapart.utils.versions import VERSIONS

ROOT = Path(__file__).parents[2]


def of(table: dict[str, Any], **changes: Any) -> str:
    return content_of(check_recipe({**table, **changes}, "test")).fingerprint


@pytest.fixture
def clone(tiny_recipe: dict[str, Any], tmp_path: Path) -> Iterator[Path]:
    """A folder with pictures, models and two recipes, the second of which starts from the first."""
    folder = tmp_path / "here" / "clone"
    pictures = folder / "photos"
    pictures.mkdir(parents=True)
    for number in range(24):
        Image.new("RGB", (12, 8), (number * 10, 90, 9)).save(pictures / f"{number}.png")
        (pictures / f"{number}.txt").write_text(f"a picture of {number}\n")
    for what in ("captioner", "scorer"):
        shutil.copytree(tiny_recipe[what]["name"], folder / what)
    recipes(folder)
    yield folder


def recipes(folder: Path, steps: int = 2) -> None:
    """``steps``: of the first one."""
    table: dict[str, Any] = {
        "data": {key: f"folder:{folder}/photos?part={n}/3" for n, key in enumerate(("train", "validation", "test"), 1)},
        "captioner": {"name": str(folder / "captioner")},
        "scorer": {"name": str(folder / "scorer")},
        "training": {"steps": 2, "batch_size": 4, "learning_rate": 1e-3, "checkpoint_every": 2},
        "validation": {"every": 2, "decoding": {"max_tokens": 6}},
        "evaluation": {"lookalike": 3, "gallery": 2, "decoding": {"max_tokens": 6}},
    }
    first = {**table, "name": "first", "objective": {"kind": "mle"}}
    first["training"] = {**first["training"], "steps": steps}
    second = {**table, "name": "second", "captioner": {"name": "first.toml"}}
    second["objective"] = {"kind": "reinforce", "decoding": {"kind": "greedy", "max_tokens": 6}}
    (folder / "first.toml").write_text(to_toml(check_recipe(first, "test")))
    (folder / "second.toml").write_text(to_toml(check_recipe(second, "test")))


def read(folder: Path, name: str = "second") -> Recipe:
    return read_recipe(folder / f"{name}.toml")


def test_the_same_recipe_has_one_fingerprint_in_every_clone(clone: Path, tmp_path: Path) -> None:
    """Recipes, models and pictures elsewhere, by other paths: only what they hold counts."""
    other = tmp_path / "there"
    shutil.copytree(clone, other)
    recipes(other)
    assert to_toml(read(clone)) != to_toml(read(other))
    assert content_of(read(clone)).fingerprint == content_of(read(other)).fingerprint


def test_further_test_sets_count_by_what_they_hold(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """And a recipe without any has the fingerprint that it had before there were some."""
    bags = tmp_path / "3.json"
    bags.write_text("[[1, 2, 3]]")
    on = {"data": "scenes:plain?n=20", "bags": [str(bags)]}

    def with_tests(**test_sets: Any) -> str:
        return of(tiny_recipe, evaluation={**tiny_recipe["evaluation"], "test_sets": test_sets})

    assert with_tests() == of(tiny_recipe)
    one = with_tests(hard=on)
    assert one != with_tests() and one == with_tests(hard={**on, "needs": {str(bags): "made by hand"}})
    copy = tmp_path / "copy.json"
    shutil.copy(bags, copy)
    assert one == with_tests(hard={**on, "bags": [str(copy)]})
    bags.write_text("[[1, 2, 4]]")
    assert len({one, with_tests(hard=on), with_tests(other=on), with_tests(hard={**on, "max_tokens": 9})}) == 4


def test_the_fingerprint_changes_with_the_upstream_its_weights_and_the_data(clone: Path) -> None:
    """And with nothing else: a card beside the model, or the prose of a recipe, decides no result."""
    found = [content_of(read(clone)).fingerprint]
    (clone / "captioner" / "README.md").write_text("A card.")
    (clone / "first.toml").write_text((clone / "first.toml").read_text().replace('about = ""', 'about = "prose"'))
    assert content_of(read(clone)).fingerprint == found[0]

    def changed() -> None:
        found.append(content_of(read(clone)).fingerprint)

    recipes(clone, steps=3)
    changed()
    weights = bytearray((clone / "captioner" / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # of the upstream's start: two recipes further up
    (clone / "captioner" / "model.safetensors").write_bytes(weights)
    changed()
    (clone / "photos" / "3.txt").write_text("another caption\n")
    changed()
    (clone / "photos" / "99.png").write_bytes((clone / "photos" / "3.png").read_bytes())
    changed()
    assert len(set(found)) == len(found)


@pytest.mark.long
def test_a_changed_upstream_is_trained_and_the_old_run_is_not_returned(
    clone: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """The old run is named in a line with the option that adopts it, which then stands for its recipe."""
    monkeypatch.chdir(clone)
    assert cli("train", "second.toml").status == 0
    recipes(clone, steps=3)
    done = cli("train", "second.toml")
    assert done.status == 0, done.err
    runs = sorted(path.name for path in Path("runs").iterdir())
    assert [name[: name.rindex("-")] for name in runs] == ["first"] * 2 + ["second"] * 2
    (line,) = [line for line in done.err.splitlines() if "--adopt" in line]
    told = re.fullmatch(r"training first, because (\S+) differs \((.*)\); .* instead, add --adopt (\S+)", line)
    assert told and told[1] == told[3] and told[2] == "training.steps 2, now 3", line
    adopted = cli("train", "second.toml", "--adopt", told[3], "--json")
    assert adopted.status == 0 and "add --adopt" not in adopted.err, adopted.err
    (new,) = {path.name for path in Path("runs").iterdir()} - set(runs)
    start = json.loads((Path("runs") / new / "run.json").read_text())["content"]["recipe"]["captioner"]["name"]
    assert start.startswith("weights:") and f'name = "{told[1]}"' in (Path("runs") / new / "recipe.toml").read_text()


def test_a_run_that_cannot_be_adopted_is_one_line(clone: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.chdir(clone)
    assert "not a trained run" in cli("train", "second.toml", "--adopt", "photos").line
    train(read(clone, "first"), Path("other"), evaluate=False)
    shutil.copytree("other", "another")
    assert "remove one of them" in cli("train", "second.toml", "--adopt", "other", "--adopt", "another").line
    assert ": first does not use a recipe 'first' as a model;" in cli("train", "first.toml", "--adopt", "other").line


def test_recipes_that_name_each_other_are_one_line(clone: Path, cli: Cli) -> None:
    text = (clone / "first.toml").read_text()
    (clone / "first.toml").write_text(text.replace(str(clone / "captioner"), "second.toml"))
    assert "recipes use each other as models: first.toml → second.toml →" in cli("train", clone / "second.toml").line


PARTS = ("samplers", "loop", "mle", "decoding")


def test_a_run_says_what_it_was_made_of_and_how_another_recipe_differs(clone: Path, tmp_path: Path) -> None:
    run = train(read(clone, "first"), tmp_path / "run", evaluate=False)
    info = run.info
    assert info["fingerprint"] == run.content.fingerprint and info["content"] == run.content.document
    assert info["content"]["code"] == {part: VERSIONS[part] for part in PARTS}
    assert {"tellapart", "python", "torch", "transformers"} <= info["versions"].keys()
    if (ROOT / ".git").exists():
        assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", info["commit"])
    (clone / "photos" / "3.txt").write_text("another caption\n")
    with pytest.raises(UsageError, match=r"contains a run of a different recipe \(data.\w+ .*, now .*\); set"):
        train(read(clone, "first"), tmp_path / "run", evaluate=False)


def test_a_new_version_of_the_code_is_another_run(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_of(read(clone))
    monkeypatch.setitem(VERSIONS, "mle", VERSIONS["mle"] + 1)  # the objective of what it starts from
    after = content_of(read(clone))
    assert after.fingerprint != before.fingerprint
    monkeypatch.setitem(VERSIONS, "contrastive", VERSIONS["contrastive"] + 1)  # which neither recipe uses
    assert content_of(read(clone)).fingerprint == after.fingerprint


def test_what_a_recipe_says_has_a_fingerprint_that_later_versions_keep(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(MLE)
    recipe = read_recipe(path)
    said = canonical(recipe)
    assert said == {
        "data": {"train": "scenes:plain?n=60", "validation": "scenes:plain?n=30&split=validation"},
        "captioner": {"new": {"vision": "scenes"}},
        "objective": {"kind": "mle"},
        "training": {"steps": 6, "learning_rate": 1e-3},
        "validation": {"select": "loss"},
    }
    assert canonical(read_recipe(path, ["training.max_grad_norm=1.0"])) == said, "a default says nothing"
    changed = [read_recipe(path, [setting]) for setting in ("seed=1", "training.max_grad_norm=2.0")]
    assert len({content_of(each).fingerprint for each in (recipe, *changed)}) == 3
    heard = ('scorer.name="scenes"', 'validation.select="loss"')
    kinds = [read_recipe(path, [*heard, f'objective.kind="{kind}"']) for kind in ("mle", "reinforce")]
    assert content_of(kinds[0]).fingerprint != content_of(kinds[1]).fingerprint, "all other keys being equal"


@pytest.mark.parametrize(("kind", "select"), [("consensus", None), ("self_retrieval", None), ("cider", "cider")])
def test_a_mask_by_length_adds_only_itself_to_what_a_recipe_says(
    tiny_recipe: dict[str, Any], kind: str, select: str | None
) -> None:
    """Neither does it change the metric that selects the checkpoint; CIDEr-D, derived from the rewards, is written."""
    tiny_recipe["validation"].pop("select", None)
    plain, masked = (
        canonical(check_recipe(tiny_recipe | {"objective": {"kind": "reinforce", "rewards": [reward]}}, "test"))
        for reward in ({"kind": kind}, {"kind": kind, "within": 1.5})
    )
    assert plain["validation"].get("select") == select
    assert masked.get("objective", {}).pop("rewards")[0]["within"] == 1.5
    plain["objective"].pop("rewards", None)
    assert masked == plain


def test_names_that_are_no_local_model_stand_for_themselves() -> None:
    """Nor is the current folder hashed where a name is empty."""
    of_name = Identities().model
    for name in ("org/model", "org/model?prompt=a picture of ", "my.module:make?k=1", "clipcap", "clipcap?", "?x=1"):
        assert of_name(name) == name
    parts = of_name("clipcap?vision=scenes&language_model=gpt2")
    assert re.fullmatch(r"clipcap\?vision=weights:[0-9a-f]{32}&language_model=gpt2", parts)
    assert of_name("scenes?prompt=x") == f"{of_name('scenes')}?prompt=x"


def test_large_weights_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.features.store.SMALL_FILE_BYTES", 10)
    monkeypatch.setattr("tellapart.features.file_signatures.SETTLED_NS", 0)
    file, read = tmp_path / "model.safetensors", []
    file.write_bytes(b"w" * 100)
    whole = fingerprint.FeatureStore.digest
    original = type(file).open
    monkeypatch.setattr(type(file), "open", lambda self, *a, **k: read.append(self) or original(self, *a, **k))
    first = whole(FeatureStore(), file)
    assert whole(FeatureStore(), file) == first and read == [file]
    file.write_bytes(b"v" * 100 + b"w")
    read.clear()
    assert whole(FeatureStore(), file) != first and read == [file]


@pytest.mark.data
def test_real_photos_have_one_fingerprint_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same recipes in another clone, and the data by a link in another place."""
    found = []
    shutil.copytree(ROOT / "recipes", tmp_path / "clone" / "recipes")
    (tmp_path / "data").symlink_to(DATA.resolve())
    for folder, data in ((ROOT, DATA.resolve()), (tmp_path / "clone", tmp_path / "data")):
        monkeypatch.setenv("TELLAPART_DATA", str(data))
        found.append(content_of(read_recipe(folder / "recipes" / "flickr8k_sr.toml")))
    assert found[0] == found[1]
    assert re.search(r"part=6/6&split=train#1000-", found[0].document["recipe"]["data"]["train"])


@pytest.mark.parametrize("train", ['"nowhere.json"', '["nowhere.json", "scenes:plain?n=4"]'])
def test_data_that_are_not_there_are_one_error_and_no_warning(
    train: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "small.toml").write_text(MLE)
    with pytest.raises(UsageError, match="no such file"):
        content_of(read_recipe(tmp_path / "small.toml", [f"data.train={train}"]))
    assert not [str(warning.message) for warning in recwarn if "Pydantic" in str(warning.message)]
