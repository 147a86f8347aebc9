"""Recipes: what is read back is what was written, and what is wrong is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from pydantic import ValidationError
from small_recipes import MLE

from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.recipe.schema import Recipe
from tellapart.recipe.shipped_recipes import SHIPPED

ROOT = Path(__file__).parents[2]
RECIPES = sorted(SHIPPED.glob("*.toml"))
REINFORCE = """
name = "small"
[data]
train = "scenes:plain?n=60"
validation = ["scenes:plain?n=30&split=validation", "scenes:alt?n=30&split=validation"]
[captioner]
name = "scenes"
[scorer]
name = "scenes"
[objective]
kind = "reinforce"
[training]
steps = 6
learning_rate = 1e-3
"""
CONTRASTIVE = """
name = "small"
data = { train = "scenes:plain?n=60", validation = "scenes:plain?n=30&split=validation" }
scorer = { new = {} }
objective = { kind = "contrastive" }
training = { steps = 6, learning_rate = 1e-3 }
"""
SMILE = MLE.replace('kind = "mle"', 'kind = "smile"')
STRING = "unable to parse string as an integer"


def read(tmp_path: Path, text: str, *settings: str) -> Recipe:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return read_recipe(path, settings)


def refusal(tmp_path: Path, text: str, *settings: str) -> str:
    """What a refused recipe is told, after the file's name."""
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text, *settings)
    message = str(caught.value)
    assert "\n" not in message and caught.value.exit_code == 2
    return message.removeprefix(f"{tmp_path / 'recipe.toml'}: ")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_ours_is_read_back_as_it_was_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TELLAPART_DATA", raising=False)
    recipe = read_recipe(path)
    assert read(tmp_path, to_toml(recipe)) == recipe
    assert "$" not in to_toml(recipe)
    assert all(Path(name).is_file() for name in named_recipes(recipe))


def named_recipes(recipe: Recipe) -> list[str]:
    models: list[Any] = [recipe.captioner, recipe.scorer, recipe.captioner and recipe.captioner.new]
    names = [getattr(model, key, None) for model in models for key in ("name", "vision")]
    return [name for name in (*names, *recipe.evaluation.eval_scorers) if name and name.endswith(".toml")]


def test_the_data_folder_is_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_DATA", "/elsewhere")
    settings = ['data.train=["flickr8k:$TELLAPART_DATA/flickr8k"]', "data.test=folder:$TELLAPART_DATA/photos"]
    recipe = read(tmp_path, MLE, *settings)
    assert recipe.data.train == ("flickr8k:/elsewhere/flickr8k",) and recipe.data.test == "folder:/elsewhere/photos"


def test_awkward_text_survives_the_round_trip(tmp_path: Path) -> None:
    about = 'a "quoted" \\ word,\na line, a tab\t, π and a name that ends like scenes.toml'
    table = read(tmp_path, REINFORCE).model_dump() | {"about": about}
    recipe = check_recipe(table, "test")
    assert recipe.about == about and read(tmp_path, to_toml(recipe)) == recipe


@pytest.mark.parametrize(
    ("text", "setting", "told"),
    [
        (REINFORCE, "training.step=3", "unknown key 'training.step'; did you mean 'steps'?"),
        (REINFORCE, "captioner.nmae='x'", "unknown key 'captioner.nmae'; did you mean 'name'?"),
        (REINFORCE, "data.tets='x'", "unknown key 'data.tets'; did you mean 'test'?"),
        (REINFORCE, "objective.kll=1", "unknown key 'objective.kll'; did you mean 'kl'?"),
        (REINFORCE, "objective.decoding.beam=3", "unknown key 'objective.decoding.beam'; did you mean 'beams'?"),
        (REINFORCE, "validation.decoding.beam=3", "unknown key 'validation.decoding.beam'; did you mean 'beams'?"),
        (MLE, "captioner.new.widht=3", "unknown key 'captioner.new.widht'; did you mean 'width'?"),
        (CONTRASTIVE, "scorer.new.txt_width=3", "unknown key 'scorer.new.txt_width'; did you mean 'text_width'?"),
        (MLE, "objective.label_smoothin=0", "unknown key 'objective.label_smoothin'; did you mean 'label_smoothing'?"),
        # one that stands in another table
        (REINFORCE, "steps=3", "unknown key 'steps'; did you mean 'training.steps'?"),
        (REINFORCE, "objective.temprature=1", "'objective.temprature'; did you mean 'objective.decoding.temperature'?"),
        (REINFORCE, "validation.lookalikes=1", "'validation.lookalikes'; did you mean 'evaluation.lookalike'?"),
        # one of another objective is no help; nor is one that is far from all
        (MLE, "objective.normalise='x'", "unknown key 'objective.normalise'; known: kind, label_smoothing, prompt"),
        (REINFORCE, "data.lr=1", "unknown key 'data.lr'; known: clean, test, train, validation"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(tmp_path: Path, text: str, setting: str, told: str) -> None:
    assert refusal(tmp_path, text, setting).endswith(told)


def test_a_misspelt_key_goes_before_the_one_that_is_missing_for_it(tmp_path: Path) -> None:
    told = refusal(tmp_path, REINFORCE.replace("learning_rate", "learn_rate"))
    assert told == "unknown key 'training.learn_rate'; did you mean 'learning_rate'?"
    told = refusal(tmp_path, REINFORCE.replace("learning_rate = 1e-3", ""))
    assert told == "'training.learning_rate' is missing; add it to the recipe or pass --set training.learning_rate=…"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("training.steps=abc", f"training.steps must be a valid integer, {STRING}; found 'abc'"),
        (f"training.steps={'x' * 99}", f"training.steps must be a valid integer, {STRING}; found '{'x' * 58}…"),
        ("training.steps=0", "training.steps must be greater than or equal to 1; found 0"),
        ("training.learning_rate=inf", "training.learning_rate must be a finite number; found inf"),
        ("training.betas=[0.9]", "training.betas has too few values; found [0.9]"),
        ("training.betas=[0.9, 1.5]", "training.betas must be less than 1; found 1.5"),
        ("training=3", "training must be a table; found 3"),
        ("training.schedule='linaer'", "training.schedule must be 'constant', 'linear' or 'cosine'; found 'linaer'"),
        ("evaluation.eval_scorers='x'", "evaluation.eval_scorers must be a list; found 'x'"),
        (
            "captioner.train=['visoin']",
            "captioner.train must be 'vision', 'mapper' or 'language_model'; found 'visoin'",
        ),
        ("captioner.train=[]", "captioner.train must have at least 1 item"),
        ("captioner.name=''", "captioner.name must have at least 1 character; found ''"),
        ("data.train=3", "data.train must be a valid string; found 3"),
        ("data.train={a=1}", "data.train must be a valid string; found a table"),
        ("data.train=[]", "data.train must"),
        ("seed=-1", "seed must be greater than or equal to 0; found -1"),
        ("name='a/b'", "name: 'a/b' is not a valid name because it becomes a folder name; use letters,"),
        ("name='..'", "name: '..' is not a valid name"),
        ("objective.kind='rienforce'", "unknown objective 'rienforce'; did you mean 'reinforce'?"),
        (
            "objective={}",
            "'objective.kind' is missing; expected one of contrastive, gem, mle, reinforce, self_distillation, "
            "smile, sparsemax",
        ),
        ("objective=3", "objective must be a table; found 3"),
    ],
)
def test_a_wrong_value_is_shown_with_what_was_expected(tmp_path: Path, setting: str, told: str) -> None:
    assert refusal(tmp_path, REINFORCE, setting).startswith(told)


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        (REINFORCE, ["captioner={}"], "[captioner] requires either name = '…' or a [captioner.new] table, but"),
        (MLE, ["captioner={name='scenes', new={vision='scenes'}}"], "[captioner] requires either name = '…' or a"),
        (MLE, ["validation.select='recall@1.lookalike'"], "[scorer] is missing"),
        (MLE, ["evaluation.eval_scorers=['scenes']"], "[scorer] is missing"),
        (REINFORCE, ["scorer={new={}}"], "[scorer] requires name = '…' because the scorer must"),
        (
            REINFORCE,
            ["objective.decoding={kind='greedy', samples=2}"],
            "objective.decoding: samples is 2, but kind = 'greedy'",
        ),
        (
            REINFORCE,
            ["objective.decoding={kind='beam', samples=6}"],
            "objective.decoding: samples is 6, but kind = 'beam'",
        ),
        (
            REINFORCE,
            ["validation.decoding={kind='sample', samples=2}"],
            "validation.decoding.samples is 2, but one caption per",
        ),
        (REINFORCE, ["objective.decoding.paragraphs=true"], "objective.decoding.paragraphs is for caption files"),
        (MLE, ["validation.decoding.paragraphs=true"], "validation.decoding.paragraphs is for caption files"),
        (REINFORCE, ["training.captions_per_picture=2"], "training.captions_per_picture has no effect with"),
        (REINFORCE, ["training.augment='crop'"], "training.augment changes pixels"),
        (CONTRASTIVE, ["captioner.name='scenes'"], "[captioner] has no effect with objective 'contrastive',"),
        (CONTRASTIVE, ["validation.select='loss'"], "validation.select is 'loss'"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path: Path, text: str, settings: list[str], told: str) -> None:
    assert refusal(tmp_path, text, *settings).startswith(told)


def test_augmentation_is_for_a_vision_encoder_that_learns(tmp_path: Path) -> None:
    recipe = read(tmp_path, REINFORCE, "training.augment=crop", "captioner.train=['vision', 'mapper']")
    assert recipe.training.augment == "crop"


@pytest.mark.parametrize("setting", ["foo", "=3", ".steps=3", "training..steps=3", "training.steps.=3", ""])
def test_a_malformed_setting_says_what_one_looks_like(tmp_path: Path, setting: str) -> None:
    assert refusal(tmp_path, MLE, setting) == (
        f"cannot parse --set {setting}; expected KEY=VALUE, for example --set training.steps=200"
    )


def test_a_setting_inside_a_value_is_refused(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, MLE, "training.steps.x=3")
        == "--set training.steps.x=3: 'steps' is a value, not a table, so it has no keys"
    )


def test_settings_are_read_as_toml_or_as_plain_text(tmp_path: Path) -> None:
    settings = [
        "training.steps = 9",
        "training.betas=[0.5, 0.6]",
        "data.train=folder:photos?limit=3",
        "about=two words",
    ]
    recipe = read(tmp_path, MLE, *settings)
    assert (recipe.training.steps, recipe.training.betas) == (9, (0.5, 0.6))
    assert (recipe.data.train, recipe.about) == ("folder:photos?limit=3", "two words")


def test_naming_a_model_replaces_the_description_of_a_new_one(tmp_path: Path) -> None:
    recipe = read(tmp_path, MLE, "captioner.name=org/model")
    assert recipe.captioner is not None and (recipe.captioner.name, recipe.captioner.new) == ("org/model", None)
    again = read(tmp_path, REINFORCE, "captioner.new={vision='scenes', width=48}")
    assert again.captioner is not None and again.captioner.name is None and again.captioner.new is not None


def test_a_named_recipe_stands_beside_its_recipe_and_a_typed_one_where_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "recipes", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    text = REINFORCE.replace('name = "scenes"', 'name = "other.toml"') + '[evaluation]\neval_scorers = ["judge.toml"]\n'
    recipe = read(there, text, "captioner.name=mine.toml")
    assert recipe.scorer is not None and recipe.scorer.name == str(there / "other.toml")
    assert recipe.evaluation.eval_scorers == (str(there / "judge.toml"),)
    assert recipe.captioner is not None and recipe.captioner.name == str(here / "mine.toml")


def test_the_recipe_that_an_error_gives_as_an_example_is_there() -> None:
    with pytest.raises(UsageError) as told:
        read_recipe(Path("nowhere.toml"))
    assert (ROOT / str(told.value).split()[-1]).is_file()


def test_what_is_no_recipe_is_said_in_one_line(tmp_path: Path) -> None:
    for name, content, told in (
        ("missing.toml", None, "does not exist;"),
        ("picture.png", b"\x89PNG\r\n", "is not UTF-8 text"),
        ("broken.toml", b"name = ", "is not valid TOML"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=told):
            read_recipe(tmp_path / name)
    with pytest.raises(UsageError, match=r"cannot read recipe .* \(Is a directory\); expected a TOML file"):
        read_recipe(tmp_path)


def test_a_default_that_changes_is_a_change_of_results() -> None:
    """A fingerprint leaves defaults out. So who changes one raises the version of the part of the code that reads it
    (`tellapart.utils.versions`), and then writes it down in ``defaults.json``; a new key is written down there, too."""
    schema = Recipe.model_json_schema(mode="serialization")
    tables = {"Recipe": schema, **schema["$defs"]}
    found = {
        name.removesuffix("__Config").rpartition("__")[2]: {
            key: field["default"] for key, field in sorted(table["properties"].items()) if "default" in field
        }
        for name, table in sorted(tables.items())
    }
    kept = json.loads(Path(__file__).with_name("defaults.json").read_text())
    assert {name: table for name, table in found.items() if table} == kept


@pytest.mark.parametrize(
    ("decoding", "told"),
    [
        ({"kind": "greedy", "temperature": 0.5}, "temperature is 0.5, but kind = 'greedy' does not use temperature"),
        ({"kind": "beam", "temperature": 0.5}, "set kind to 'sample' or 'consensus'"),
        (
            {"kind": "sample", "beams": 3},
            "beams is 3, but kind = 'sample' does not use beams; remove beams (or set its",
        ),
        ({"kind": "consensus", "beams": 3}, "set kind to 'beam'"),
        ({"candidates": 8}, "candidates is 8, but kind = 'greedy' does not use candidates; remove"),
        ({"kind": "sample", "scorer_weight": 0.1}, "scorer_weight is 0.1"),
    ],
)
def test_a_setting_of_decoding_that_its_kind_does_not_read_is_refused(decoding: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as error:
        Decoding(**decoding)
    assert told in str(error.value)


def test_what_a_run_writes_with_all_defaults_is_read_and_kind_alone_can_be_set(
    tiny_recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("greedy", "sample", "beam", "consensus"):
        assert Decoding(**Decoding(kind=kind).model_dump()).kind == kind
    assert Decoding(kind="greedy", beams=1).beams == 1  # as captions by --beams 1 record it
    table = {"objective": {"decoding": {"kind": "sample", "temperature": 0.3, "max_tokens": 8}}}
    apply_override(table, "objective.decoding.kind=beam")
    assert table == {"objective": {"decoding": {"kind": "beam", "max_tokens": 8}}}
    assert ": ignored temperature = 0.3, which this kind of decoding does not use" in capsys.readouterr().err


@pytest.mark.parametrize("seed", [99999999999999999999, 2**32, -1])
def test_a_seed_that_no_generator_takes_is_one_line(seed: int, tiny_recipe: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"seed must be (less than 4294967296|greater than or equal to 0); found"):
        check_recipe({**tiny_recipe, "seed": seed}, "test")


@pytest.mark.parametrize("key", ["layers", "width", "max_tokens"])
def test_a_model_of_a_size_that_no_machine_holds_is_refused(cli: Cli, key: str) -> None:
    value = 10**20 if key != "width" else 6 * 10**19
    done = cli("train", "scenes_smile", "--set", "captioner.new.vision=scenes", "--set", f"captioner.new.{key}={value}")
    assert done.status == 2 and f"captioner.new.{key}" in done.err and "less than or equal to 65536" in done.err
