"""The one-liner: settings that fit, pictures held out, a model with a card, and the same command again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from captioners.families import FAMILIES
from command_line import Cli
from PIL import Image
from safetensors.torch import load_file
from tiny_blip import save_blip

from tellapart.data import open_many
from tellapart.errors import UsageError
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.self_distillation import SelfDistillation
from tellapart.recipe.presets import PRESETS, objective_names
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.training import run_files
from tellapart.training.build import TrainingSetup
from tellapart.training.finetune_recipe import BATCH_SIZE, plan
from tellapart.training.micro_batches import parts_of_batch

WORLD = "scenes:plain?n=60&split=train"


def held(recipe_data: object) -> list[set[str]]:
    data = recipe_data
    return [{i.id for i in open_many(list(getattr(data, key)))} for key in ("train", "validation", "test")]


def test_what_is_held_out_is_not_learned_from_and_nothing_is_lost(tiny_captioner: Path) -> None:
    recipe = plan(str(tiny_captioner), [WORLD])
    train, validation, test = held(recipe.data)
    assert len(train) + len(validation) + len(test) == 60 == len(train | validation | test)
    assert (len(validation), len(test)) == (6, 6)
    assert recipe.scorer is not None and recipe.scorer.name == "scenes"  # `scenes` has a listener of its own
    assert recipe.training.batch_size == 48 < BATCH_SIZE  # fewer pictures than a usual batch has


@pytest.mark.parametrize("objective", PRESETS)
def test_every_objective_is_a_recipe(objective: str, tiny_captioner: Path) -> None:
    recipe = plan(str(tiny_captioner), [WORLD], objective=objective, lora=True)
    assert recipe.objective.kind == PRESETS[objective]["kind"]
    assert recipe.captioner is not None and recipe.captioner.lora is not None
    assert recipe.training.learning_rate == pytest.approx(3e-4)


def test_exploration_has_the_settings_of_the_recipe_for_paper_4(tiny_captioner: Path) -> None:
    """Five samples at temperature 1, alpha 0.75 and the paper's baselines, also where the objective is chosen here."""
    found = plan(str(tiny_captioner), [WORLD], objective="exploration").objective.model_dump()
    wanted = read_recipe(find_recipe("papers/sle_coco")).objective.model_dump()
    assert found == wanted and found["exploration"]["alpha"] == 0.75


def test_objectives_are_what_people_choose_and_not_their_parts() -> None:
    assert set(PRESETS) <= set(names := objective_names())
    assert not {"exact_truth", "paid_words", "consensus", "reinforce", "custom"} & set(names)


def test_a_large_batch_goes_in_parts_that_fit(tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.training.micro_batches.free_memory", lambda: 8 << 30)
    assert parts_of_batch(str(tiny_captioner), 200, 30) == 1
    monkeypatch.setattr("tellapart.training.micro_batches.free_memory", lambda: 10_000_000)
    # 200 captions × (30 + 20 tokens) × (1 layer × 16 × 34 + V × 3) × 4 bytes over 0.4 of ten million
    vocabulary = json.loads((tiny_captioner / "config.json").read_text())["text_config"]["vocab_size"]
    assert parts_of_batch(str(tiny_captioner), 200, 30) == -(-200 * 50 * (544 + 3 * vocabulary) * 4 // 4_000_000)


def test_the_memory_of_a_name_with_options_is_that_of_the_model_behind_it(
    tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tellapart.training.micro_batches.free_memory", lambda: 10_000_000)
    whole = parts_of_batch(str(tiny_captioner), 200, 30)
    assert whole > 1
    for name in (f"{tiny_captioner}?prompt=a picture of", f"weights.pt?vision=x&language_model={tiny_captioner}"):
        assert parts_of_batch(name, 200, 30) == whole
    for unknown in ("my_captioner:make", "./nowhere?prompt=x", "no such name"):  # reported when it is loaded
        assert parts_of_batch(unknown, 200, 30) == 1


def test_a_configuration_that_is_nested_too_deeply_is_one_line(cli: Cli, tiny_captioner: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_captioner, tmp_path / "nested")
    (folder / "config.json").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    assert cli("finetune", folder, WORLD, "-o", tmp_path / "run").line.startswith(f"cannot load {folder}")


def test_folders_may_hold_the_same_names_and_be_small(tiny_captioner: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for shade, folder in enumerate(folders):
        folder.mkdir()
        for number in range(4):
            Image.new("RGB", (30, 20), (number * 20, 90 * shade, 9)).save(folder / f"{number}.png")
    recipe = plan(str(tiny_captioner), [str(folder) for folder in folders], scorer="scenes", steps=1)
    parts = [open_many(list(specs)) for specs in (recipe.data.train, recipe.data.validation, recipe.data.test)]
    ids = [item.id for part in parts for item in part]
    assert sorted(ids) == sorted((folder / f"{number}.png").as_posix() for folder in folders for number in range(4))
    with pytest.raises(UsageError, match="these parts contain no items; pass more pictures, or use"):
        open_many([f"{folders[0]}?part=9/9", f"{folders[1]}?part=9/9"])


def test_the_parts_count_references_as_long_as_they_are(
    tiny_captioner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 words: they are learned whole, so memory is planned for them, and not for the captions to be written."""
    for number in range(12):
        Image.new("RGB", (30, 20), (number * 20, 90, 9)).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.txt").write_text("word " * 60)
    monkeypatch.setattr("tellapart.training.micro_batches.free_memory", lambda: 1_000_000)
    learned, written = (plan(str(tiny_captioner), [str(tmp_path)], objective=o) for o in ("mle", "self-retrieval"))
    parts, model = [each.training.gradient_accumulation_steps for each in (learned, written)], str(tiny_captioner)
    assert parts[0] == parts_of_batch(model, learned.training.batch_size, 84)
    assert parts[1] == parts_of_batch(model, 4 * written.training.batch_size, 30)


@pytest.mark.long
def test_from_the_command_to_a_model_with_a_card_and_again(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path
) -> None:
    command = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, "-o", tmp_path / "out", "--steps", 2)
    done = cli(*command, "--max-tokens", 6, "--json")
    assert done.status == 0, done.err
    table = json.loads(done.out)
    assert set(table["systems"]) >= {"before", "after"}
    (said,) = [line for line in done.err.splitlines() if " training, " in line]
    assert said == (
        f"self-distillation on {WORLD}: 48 training, 6 validation and 6 test pictures; 2 steps of 48 pictures; "
        f"settings: {tmp_path / 'out' / 'recipe.toml'}"
    )
    assert "[training]" not in done.err  # the recipe is in its file
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    length = table["systems"]["after"]["length"]["value"]
    assert f"{length:.2f}" in card and "self-distillation on scenes" in card
    stamp = (tmp_path / "out" / "model" / "model.safetensors").stat().st_mtime_ns
    assert cli(*command, "--max-tokens", 6).status == 0
    assert (tmp_path / "out" / "model" / "model.safetensors").stat().st_mtime_ns == stamp  # nothing is trained twice
    written = cli("caption", tmp_path / "out", "scenes:plain?n=3&split=test", "-o", tmp_path / "c.jsonl")
    assert written.status == 0 and len((tmp_path / "c.jsonl").read_text().splitlines()) == 3


def test_how_long_and_with_which_settings(tiny_captioner: Path) -> None:
    name = str(tiny_captioner)
    recipe = plan(name, [WORLD], epochs=2, batch_size=12, settings=["training.weight_decay=0.1", "seed=3"])
    assert (recipe.training.batch_size, recipe.training.steps) == (12, 8)  # 48 pictures, twice, by twelve
    assert recipe.training.warmup == 0 and recipe.training.checkpoint_every == 1  # of eight steps
    assert (recipe.training.weight_decay, recipe.seed) == (0.1, 3)
    assert plan(name, [WORLD]).training.steps == 300
    assert plan(name, ["scenes:plain?n=60&split=train&limit=20"], epochs=1, batch_size=10).training.steps == 2
    with pytest.raises(UsageError, match="remove one of them"):
        plan(name, [WORLD], epochs=2, steps=5)
    with pytest.raises(
        UsageError, match=r"--batch-size 49 exceeds the number of training pictures: 48 of 60 pictures remain"
    ):
        plan(name, [WORLD], batch_size=49)
    with pytest.raises(UsageError, match=r"unknown key 'training.batch_siz'; did you mean 'batch_size'"):
        plan(name, [WORLD], settings=["training.batch_siz=4"])


@pytest.mark.long
def test_the_same_command_goes_on_whatever_memory_is_free_then(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free memory decides in how many parts a batch goes: what was planned is kept in the run."""
    papers = ("--objective", "self-retrieval")  # learns from four samples of a picture
    command: tuple[object, ...] = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, "-o", tmp_path / "out")
    command = (*command, "--steps", 2, *papers)
    with monkeypatch.context() as patch:
        patch.setattr("tellapart.training.micro_batches.free_memory", lambda: 300_000_000)
        patch.setattr("tellapart.training.loop.train_step", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        assert cli(*command, "--max-tokens", 6).status == 130
    planned = read_recipe(tmp_path / "out" / "recipe.toml").training.gradient_accumulation_steps
    monkeypatch.setattr("tellapart.training.micro_batches.free_memory", lambda: 30_000_000)
    assert (
        planned
        != plan(str(tiny_captioner), [WORLD], objective=papers[1], max_tokens=6).training.gradient_accumulation_steps
    )
    done = cli(*command, "--max-tokens", 6)
    assert done.status == 0, done.err
    assert read_recipe(tmp_path / "out" / "recipe.toml").training.gradient_accumulation_steps == planned
    other = cli(
        *command, "--max-tokens", 6, "--set", f"training.gradient_accumulation_steps={planned + 1}"
    )  # what is typed counts
    assert other.status == 2 and "); set another folder with --out, or add" in other.err


def test_a_folder_of_pictures_without_captions(tmp_path: Path, tiny_captioner: Path) -> None:
    for number in range(12):
        Image.new("RGB", (8, 8), (number * 20, 0, 0)).save(tmp_path / f"{number}.png")
    recipe = plan(str(tiny_captioner), [str(tmp_path)])
    assert [len(part) for part in held(recipe.data)] == [6, 3, 3]
    assert recipe.scorer is not None and recipe.scorer.name == "openai/clip-vit-base-patch32"
    with pytest.raises(UsageError, match=r"12 of 12 pictures have no reference.*--objective self-retrieval"):
        plan(str(tiny_captioner), [str(tmp_path)], objective="smile")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve photos of 3:2, without captions."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(12):
        Image.effect_noise((90, 60), 20 + 15 * number).convert("RGB").save(folder / f"{number}.jpg")
    return folder


def test_the_defaults_are_what_was_measured_on_photos_and_on_scenes(photos: Path) -> None:
    scenes, real = (plan("scenes", [where]).objective for where in (WORLD, str(photos)))  # it is the default
    assert isinstance(scenes, SelfDistillation.Config) and isinstance(real, Reinforce.Config)
    assert PRESETS["self-distillation"].items() <= scenes.model_dump().items()
    assert plan("scenes", [WORLD], objective="self-distillation").objective == scenes
    assert [reward.kind for reward in real.rewards] == ["self_retrieval", "consensus", "likelihood"]
    recipe = read_recipe(find_recipe("flickr8k_truthful")).objective
    assert isinstance(recipe, Reinforce.Config)
    own = {"decoding", "scorers", "combine"}  # Flickr8k's scorers are cross-fitted
    assert [reward.model_dump(exclude=own) for reward in real.rewards] == [
        reward.model_dump(exclude=own) for reward in recipe.rewards
    ]
    drawn = [reward.decoding for reward in (real.rewards[1], recipe.rewards[1])]  # type: ignore[union-attr]
    assert drawn[0] == drawn[1].model_copy(update={"max_tokens": 30})
    for pictures in (str(photos), WORLD):  # a name is one objective, whatever the pictures are
        assert plan("scenes", [pictures], objective="truthful-self-retrieval").objective == real
    papers = plan("scenes", [str(photos)], objective="self-retrieval").objective
    assert isinstance(papers, Reinforce.Config) and [reward.kind for reward in papers.rewards] == ["self_retrieval"]
    long = plan("scenes", [str(photos)], max_tokens=100).objective
    assert isinstance(long, Reinforce.Config)
    assert long.decoding.max_tokens == long.rewards[1].decoding.max_tokens == 100  # type: ignore[union-attr]
    same = ("baseline", "length_normalization", "kl", "kl_temperature")
    assert [getattr(real, key) for key in same] == [getattr(recipe, key) for key in same]


def test_all_that_ask_for_the_start_share_one_copy_of_its_weights() -> None:
    """The learner has its own; KL, rewards and the evaluation, under whatever prompt, have one."""
    setup = TrainingSetup(plan("scenes", [WORLD], objective="self-retrieval"), lambda name: name)
    assert setup.start() is setup.start()
    asked = setup.start("in this picture")
    assert asked is not setup.start() and asked.model is setup.start().model
    assert setup.captioner.model is not setup.start().model


@pytest.mark.long
@pytest.mark.parametrize(("family", "lora"), [("blip", []), ("blip", ["--lora"]), ("qwen2_vl", [])])
def test_real_layouts_learn_from_photos_by_the_truthful_objective(
    family: str, lora: list[str], cli: Cli, photos: Path, tmp_path: Path, tiny_scorer: Path
) -> None:
    """It is the default."""
    words = ["a", "red", "dog", "on", "the", "grass", "and", "cat"]
    model = save_blip(tmp_path, words) if family == "blip" else FAMILIES[family](tmp_path / family)
    done = cli(
        "finetune", model, photos, "--scorer", tiny_scorer, "-o", tmp_path / "out", "--steps", 2, "--max-tokens", 8,
        "--json", *lora,
    )  # fmt: skip
    assert done.status == 0, done.err
    assert set(json.loads(done.out)["systems"]) >= {"before", "after"}
    logged = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert all(line["reward.likelihood"] < 0 for line in logged if "loss" in line)
    assert all(0 <= line["reward.consensus"] <= 1 for line in logged if "loss" in line)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--objective", "smlie"), "unknown objective 'smlie'; did you mean 'smile'?"),
        (
            ("--objective", "exact_truth"),
            "'exact_truth' can only be used in a recipe (objective.rewards.kind); --objective",
        ),
        (("--objective", "self-retrieval"), "5 pictures; expected at least 8"),
    ],
)
def test_wrong_input_is_one_line(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = cli("finetune", "scenes", "scenes:plain?n=5&split=train", "-o", tmp_path / "out", *arguments)
    assert done.status == 2 and told in done.err and len(done.err.strip().splitlines()) == 1


def test_a_part_of_its_own_is_refused(tiny_captioner: Path) -> None:
    with pytest.raises(UsageError, match="already selects a part, but finetune holds"):
        plan(str(tiny_captioner), [WORLD + "&part=1/2"])


@pytest.mark.long
def test_more_steps_extend_a_finished_run_fewer_are_refused_and_overwrite_begins_anew(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path
) -> None:
    out = tmp_path / "out"
    command = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, "-o", out, "--objective", "mle")

    def steps() -> list[int]:
        lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        return [line["step"] for line in lines if "loss" in line and "event" not in line]

    def typed(*more: object) -> str:
        done = cli(*command, "--max-tokens", 6, "--set", "training.log_every=1", *more)
        assert done.status == 0, done.err
        return str(done.err)

    assert "2 steps of 48 pictures" in typed("--steps", 2)
    assert "4 steps of 48 pictures" in typed("--steps", 4)
    assert steps() == [1, 2, 3, 4]  # the first two were not trained again
    info = json.loads((out / "run.json").read_text())
    assert [(each["from"], each["to"]) for each in info["extended"]] == [(2, 4)]
    assert info["finished"] and read_recipe(out / "recipe.toml").training.steps == 4
    results = (out / "results.json").stat().st_mtime_ns
    assert " training, " not in typed()  # the same run without --steps: nothing is left to do
    assert (out / "results.json").stat().st_mtime_ns == results

    fewer = cli(*command, "--max-tokens", 6, "--set", "training.log_every=1", "--steps", 3)
    assert (
        fewer.status == 2
        and "contains a run of 4 steps; to continue this run," in fewer.line
        and "--overwrite" in fewer.line
    )
    other = cli(*command, "--max-tokens", 6, "--steps", 8, "--rate", "1e-3")
    assert other.status == 2 and "training.learning_rate" in other.line and "training.steps" not in other.line

    wrong = cli(*command, "--overwrite", "--set", "scorer.name=./nowhere")
    assert wrong.status != 0 and "nowhere" in wrong.line  # and what is there stays
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in cli(*command, "--overwrite").line
    (out / "notes.txt").unlink()
    own = cli("finetune", out, WORLD, "--scorer", tiny_scorer, "-o", out, "--objective", "mle", "--overwrite")
    assert "--overwrite would remove" in own.line
    assert (out / "results.json").stat().st_mtime_ns == results
    typed("--steps", 3, "--overwrite")
    assert steps() == [1, 2, 3] and "extended" not in json.loads((out / "run.json").read_text())


@pytest.mark.long
def test_a_run_that_was_killed_while_it_was_extended_is_extended_by_the_same_command(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, "-o", out, "--objective", "mle")
    assert cli(*command, "--steps", 2, "--max-tokens", 6).status == 0
    write = run_files.replace_text
    for last in ("recipe.toml", "run.json"):  # before each of the two is written

        def killed(path: Path, text: str, last: str = last) -> None:
            if path.name == last:
                raise KeyboardInterrupt
            write(path, text)

        with monkeypatch.context() as patch:
            patch.setattr(run_files, "replace_text", killed)
            assert cli(*command, "--steps", 4, "--max-tokens", 6).status == 130
    done = cli(*command, "--steps", 4, "--max-tokens", 6)
    assert done.status == 0, done.err
    assert json.loads((out / "run.json").read_text())["extended"][0]["from"] == 2


def test_what_is_wrong_is_told_before_anything_else(cli: Cli, tmp_path: Path) -> None:
    done = cli("finetune", "./nowhere", WORLD, "--scorer", "scenes", "-o", tmp_path / "out")
    assert "nowhere" in done.line and not (tmp_path / "out").exists()


@pytest.mark.parametrize("objective", ["truthful-self-retrieval", "self-retrieval", "self-distillation"])
def test_copies_of_one_picture_are_refused(objective: str, cli: Cli, tmp_path: Path, photos: Path) -> None:
    for path in photos.iterdir():
        path.write_bytes((photos / "0.jpg").read_bytes())
    done = cli("finetune", "scenes", photos, "--scorer", "scenes", "-o", tmp_path / "out", "--objective", objective)
    assert ": found 12 pictures, of which only 1 are distinct; expected at" in done.line


@pytest.mark.parametrize(
    ("objective", "select"),
    [
        ("mle", "loss"),
        ("cider", "cider"),
        ("exploration", "cider"),
        ("cider+self-retrieval", "recall@1.lookalike"),
        ("smile", "recall@1.lookalike"),
        ("self-retrieval", "recall@1.lookalike"),
        ("self-distillation", "recall@1.lookalike"),
    ],
)
def test_the_checkpoint_is_selected_by_the_metric_of_the_objective(
    objective: str, select: str, tiny_captioner: Path
) -> None:
    name = str(tiny_captioner)
    assert plan(name, [WORLD], objective=objective).validation.select == select
    named = plan(name, [WORLD], objective=objective, settings=["validation.select=step"])
    assert named.validation.select == "step"


def test_mle_keeps_a_trained_step_and_a_kept_start_is_a_warning(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path
) -> None:
    command = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, "--objective", "mle", "--max-tokens", 6)
    done = cli(*command, "-o", tmp_path / "learns", "--steps", 8, "--rate", "3e-3")
    assert done.status == 0 and "has the initial weights" not in done.err
    assert json.loads((tmp_path / "learns" / "run.json").read_text())["kept_step"] > 0
    assert not (equal := equal_weights(tmp_path / "learns" / "model", tiny_captioner)), equal

    out = tmp_path / "fails"  # after steps that are far too large no loss is better than the start's
    done = cli(*command, "-o", out, "--steps", 2, "--rate", "30")
    assert done.status == 0, done.err
    assert "WARNING: the saved model has the initial" in done.err
    assert "the saved model has the initial weights" in json.loads((out / "results.json").read_text())["notes"][0]
    assert "has the initial weights" in (out / "report.html").read_text()
    assert equal_weights(out / "model", tiny_captioner)
    assert "has the initial weights" in (out / "model" / "README.md").read_text()


def equal_weights(one: Path, other: Path) -> bool:
    """Returns whether two models have the same weights."""
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)
