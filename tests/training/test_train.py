"""The one loop: stop and resume, what is frozen, what a run leaves behind."""

from __future__ import annotations

import json
import math
import random
import re
import shlex
import shutil
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from forked import finish, fork, type_command
from safetensors.torch import load_file

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.language.words import content_words
from tellapart.recipe.reading import check_recipe, to_toml
from tellapart.recipe.schema import Recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.fingerprint import content_of
from tellapart.training.loop import fit
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.run_folder import Run
from tellapart.training.runs import train, upstream
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Rollout

PARTS = ["vision", "mapper", "language_model"]


def recipe_of(table: dict[str, Any], **changes: Any) -> Recipe:
    return check_recipe({**table, **changes}, "test")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def losses(folder: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "event" not in line]


def stop_after(steps: int, recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and fail in the step after ``steps``, as a crash would."""
    done = train_step

    def step_or_stop(*args: Any) -> dict[str, float]:
        if args[-1] == steps:
            raise InterruptedError
        return done(*args)

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr("tellapart.training.loop.train_step", step_or_stop)
        train(recipe, folder, resume=True, evaluate=False)


SAMPLES = {"kind": "sample", "samples": 3, "max_tokens": 6}
EXPLORING = {
    "kind": "reinforce",
    "rewards": [{"kind": "cider"}, {"kind": "self_retrieval", "weight": 0.5}],
    "decoding": SAMPLES,
    "exploration": {},
    "whiten": True,
}
PER_BAG = {"kind": "self_retrieval", "score": "accuracy", "candidates": "bag"}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "running mean": {"objective": EXPLORING},
    "self-critical": {"objective": EXPLORING | {"baseline": "greedy", "length_normalization": "none", "entropy": 0.01}},
    "in parts": {"objective": EXPLORING | {"kl": 0.1}, "training": {"gradient_accumulation_steps": 3}},
    "per bag": {"objective": EXPLORING | {"rewards": [PER_BAG]}, "training": {"batches": "families"}},
    "lora": {"captioner": {"lora": {"rank": 4, "modules": ["c_attn", "convolution"]}, "train": PARTS}},
}


@pytest.mark.long
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_run_of_several_rewards_or_lora_stops_and_goes_on_to_the_last_bit(
    name: str, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(merged(tiny_recipe, OBJECTIVES[name]))
    train(recipe, tmp_path / "whole", evaluate=False)
    stop_after(3, recipe, tmp_path / "stopped", monkeypatch)
    train(recipe, tmp_path / "stopped", resume=True, evaluate=False)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "whole"))
    last = [run.last() for run in (Run(tmp_path / "whole", recipe), Run(tmp_path / "stopped", recipe))]
    assert last[0] and last[1] and last[0].objective == last[1].objective
    assert same(*(load_file(found.folder / "weights.safetensors") for found in last))  # type: ignore[union-attr]


def merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with tables changed; an objective is replaced."""
    return table | {k: v if k == "objective" else table.get(k, {}) | v for k, v in changes.items()}


@pytest.mark.long
@pytest.mark.parametrize("vision", [False, True])
@pytest.mark.parametrize("kind", ["reinforce", "mle"])
def test_a_step_in_parts_is_the_same_step(kind: str, vision: bool, tiny_recipe: dict[str, Any]) -> None:
    """Dropout off: the reward sees the whole batch, the gradient is the sum of the parts'."""
    changes: dict[str, Any] = {
        "objective": EXPLORING | {"kl": 0.1, "entropy": 0.1} if kind == "reinforce" else {"kind": "mle"}
    }
    changes["captioner"] = {"train": PARTS if vision else PARTS[1:]}
    found = []
    for parts in (1, 3):
        recipe = recipe_of(merged(tiny_recipe, changes | {"training": {"gradient_accumulation_steps": parts}}))
        setup = TrainingSetup(recipe, upstream)
        data, objective = setup.training_set(), objective_of(setup)
        trainable = TrainableParts(setup.learner, setup.trained_parts)
        optimizer = make_optimizer(trainable, recipe.training)
        setup.learner.model.eval()
        logs = train_step(setup, data, objective, trainable, optimizer, make_scheduler(optimizer, recipe.training), 0)
        found.append((logs, [p.grad.clone() for p in trainable.parameters if p.grad is not None]))
    (whole, gradients), (in_parts, added) = found
    assert whole.keys() == in_parts.keys() and len(gradients) == len(added) > 3
    for key, value in whole.items():
        assert in_parts[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    for a, b in zip(gradients, added, strict=True):
        assert float((a - b).abs().max()) <= 1e-5 * max(1.0, largest)


def test_parts_are_encoded_one_by_one_and_the_scorer_stays_as_it_is(tiny_recipe: dict[str, Any]) -> None:
    recipe = recipe_of(
        merged(tiny_recipe, {"captioner": {"train": PARTS}, "training": {"gradient_accumulation_steps": 4}})
    )
    setup = TrainingSetup(recipe, upstream)
    assert setup.scorer is not None
    data, objective = setup.training_set(), objective_of(setup)
    before = {k: v.clone() for k, v in setup.scorer.model.state_dict().items()}
    vision = [p.detach().clone() for p in setup.learner.model.vision.parameters()]
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, recipe.training)
    sizes = []
    encode = setup.learner.encode
    setup.learner.encode = lambda pixels: sizes.append(len(pixels)) or encode(pixels)
    train_step(setup, data, objective, trainable, optimizer, make_scheduler(optimizer, recipe.training), 0)
    assert max(sizes) == 5
    assert same(before, setup.scorer.model.state_dict())
    assert any(not torch.equal(a, b) for a, b in zip(vision, setup.learner.model.vision.parameters(), strict=True))


def test_bf16_rewards_are_those_of_full_precision(tiny_recipe: dict[str, Any]) -> None:
    """A cosine in bf16 times a scale of 100 would be off by tenths of a nat."""
    rewards = []
    for precision in ("fp32", "bf16"):
        setup = TrainingSetup(recipe_of(merged(tiny_recipe, {"training": {"precision": precision}})), upstream)
        assert setup.scorer is not None
        batch = setup.training_set().batch(0)
        objective: Any = objective_of(setup)
        told = Rollout(torch.ones(20, 1), torch.ones(20, 1, dtype=torch.bool), [x.references[0] for x in batch.items])
        with setup.step_context.autocast():
            rewards.append(objective.advantages(told, None, batch)[0])
            assert torch.isfinite(objective(setup.learner, batch).value)
    assert torch.equal(rewards[0], rewards[1])


@pytest.mark.long
def test_a_captioner_with_lora_is_published_without(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe = recipe_of(merged(tiny_recipe, OBJECTIVES["lora"] | {"validation": {"every": 6}}))
    run = train(recipe, tmp_path / "run")
    assert not any("lora" in name or "base_layer" in name for name in weights(run.folder))
    start = load_file(Path(str(recipe.captioner and recipe.captioner.name)) / "model.safetensors")
    moved = {name for name, tensor in weights(run.folder).items() if not torch.equal(tensor, start[name])}
    assert moved <= {n for n in start if n.startswith("mapper") or "c_attn.weight" in n or "vision" in n}
    kept = load_file(run.last().folder / "weights.safetensors")  # type: ignore[union-attr]
    assert any("lora_A" in name for name in kept) and not any("base_layer" in name for name in kept)
    assert len((run.folder / "captions" / "after.jsonl").read_text().splitlines()) == 30


@pytest.mark.long
@pytest.mark.parametrize("kind", ["reinforce", "mle", "contrastive"])
def test_a_run_that_stopped_anywhere_ends_with_the_same_weights_and_losses(
    kind: str, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = tiny_recipe["objective"] if kind == "reinforce" else {"kind": kind}
    captioner = {"captioner": None} if kind == "contrastive" else {}
    recipe = recipe_of(tiny_recipe, objective=objective, **captioner)
    train(recipe, tmp_path / "whole", evaluate=False)
    for stop in (1, 2, 5):
        stop_after(stop, recipe, tmp_path / f"stopped{stop}", monkeypatch)
        train(recipe, tmp_path / f"stopped{stop}", resume=True, evaluate=False)
        assert losses(tmp_path / f"stopped{stop}") == losses(tmp_path / "whole")
        assert same(weights(tmp_path / f"stopped{stop}"), weights(tmp_path / "whole"))
        last = [run.last() for run in (Run(tmp_path / "whole", recipe), Run(tmp_path / f"stopped{stop}", recipe))]
        assert last[0] and last[1] and last[0].objective == last[1].objective
        assert same(*(load_file(found.folder / "weights.safetensors") for found in last))  # type: ignore[union-attr]


@pytest.mark.long
def test_another_seed_is_another_run(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    for seed in (0, 1):
        train(recipe_of(tiny_recipe, seed=seed), tmp_path / str(seed), evaluate=False)
    assert losses(tmp_path / "0") != losses(tmp_path / "1")


def test_only_the_named_parts_learn(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    captioner = {**tiny_recipe["captioner"], "train": ["mapper"]}
    recipe = recipe_of(tiny_recipe, captioner=captioner, validation={"every": 6})
    setup = TrainingSetup(recipe, upstream)
    before = {name: tensor.clone() for name, tensor in setup.learner.model.state_dict().items()}
    run = Run(tmp_path, recipe)
    run.stamp("cpu")
    fit(setup, run)
    moved = {name for name, tensor in setup.learner.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved and all(name.startswith("mapper.") for name in moved)


def test_an_unknown_part_is_named(tiny_recipe: dict[str, Any]) -> None:
    setup = TrainingSetup(recipe_of(tiny_recipe), upstream)
    with pytest.raises(UsageError, match="no part 'adapter'; expected vision, mapper, language_model"):
        TrainableParts(setup.learner, ("adapter",))


@pytest.mark.long
def test_a_run_leaves_captions_results_gallery_and_report(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    run = train(recipe_of(tiny_recipe), tmp_path / "run")
    results = json.loads((run.folder / "results.json").read_text())
    assert {"before", "after", "human"} <= set(results["systems"])
    assert 0 <= results["systems"]["after"]["recall@1.lookalike"]["value"] <= 100
    assert {"listener_accuracy", "hallucination_rate"} <= set(results["systems"]["before"])
    for name in ("before", "after"):
        assert len((run.folder / "captions" / f"{name}.jsonl").read_text().splitlines()) == 30
    answer = json.loads((run.folder / "gallery.json").read_text())["sets"][0]["systems"]["before"]
    marked = [answer["caption"][start:end] for start, end, *_ in answer["words"]]
    assert marked == [answer["caption"][word.start : word.end] for word in content_words(answer["caption"])]
    assert "<html" in (run.folder / "report.html").read_text()
    assert run.finished and not list(run.folder.rglob(".*"))
    assert train(recipe_of(tiny_recipe), tmp_path / "run").info == run.info  # a finished run is not done again


def test_an_unfinished_run_is_not_overwritten(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny_recipe)
    stop_after(3, recipe, tmp_path / "run", monkeypatch)
    with pytest.raises(UsageError, match=r"unfinished run .step 2 of 6.*--resume"):
        train(recipe, tmp_path / "run")
    with pytest.raises(UsageError, match="run of a different recipe"):
        train(recipe_of(tiny_recipe, seed=5), tmp_path / "run", resume=True)


@pytest.mark.long
def test_a_damaged_byte_in_the_log_and_damaged_results_are_one_line(
    cli: Cli, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    recipe, run = tmp_path / "r.toml", tmp_path / "run"
    short = merged(tiny_recipe, {"training": {"steps": 2}, "validation": {"every": 2}})
    recipe.write_text(to_toml(check_recipe(short, "test")))
    command = ("train", recipe, "--out", run, "--resume")
    assert cli(*command).status == 0
    for damage in ("[1", "[]", '{"systems": 3}', '{"systems": {}, "pairs": [{}], "signatures": {}}'):
        (run / "results.json").write_text(damage)
        assert "results.json is damaged" in cli(*command).line
    (run / "results.json").unlink()
    assert cli(*command).status == 0 and (run / "results.json").is_file()
    shutil.rmtree(run / "model")
    log = run / "log.jsonl"
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(whole[0][:9] + b"\xff" + whole[0][10:] + b"".join(whole[1:]))
    done = cli(*command)
    assert done.status == 0 and f"{log}: ignored 1 damaged lines" in done.err
    assert log.read_bytes().splitlines(keepends=True) == whole[1:]


@pytest.mark.long
@pytest.mark.parametrize(
    "killed_in", ["tellapart.training.final_evaluation.write_gallery", "tellapart.training.runs.build_report"]
)
def test_a_run_killed_before_its_page_was_there_gets_it(
    killed_in: str, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9 between the captions and the page: the same command does what is missing."""

    def killed(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    recipe = recipe_of(merged(tiny_recipe, {"training": {"steps": 2}, "validation": {"every": 2}}))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(killed_in, killed)
        train(recipe, tmp_path / "run")
    captions = tmp_path / "run" / "captions" / "after.jsonl"
    written = captions.stat().st_mtime_ns
    run = train(recipe, tmp_path / "run", resume=True)
    assert run.finished and (run.folder / "gallery.json").is_file() and (run.folder / "results.json").is_file()
    assert (
        json.loads((run.folder / "gallery.json").read_text())["sets"][0]["target"]
        in (run.folder / "report.html").read_text()
    )
    if killed_in.endswith("build_report"):
        assert captions.stat().st_mtime_ns == written, "what was measured is not measured again"


DAMAGES = ("weights.safetensors", "optimiser.pt", "state.json", "emptied", "a line", "removed")


def damage(checkpoint: Path, kind: str) -> None:
    """Turn a byte of a file over; without a checksum that would tell it, where the kind says so."""
    sums, file = checkpoint / "SHA256SUMS", checkpoint / (kind if "." in kind else "weights.safetensors")
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    if kind == "emptied":
        sums.write_text("")
    elif kind == "a line":
        sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if file.name not in line))
    elif kind == "removed":
        sums.unlink()


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_refused(
    kind: str, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny_recipe)
    stop_after(3, recipe, tmp_path / "run", monkeypatch)
    for checkpoint in (tmp_path / "run" / "checkpoints").glob("step-*"):
        damage(checkpoint, kind)
    with pytest.raises(TellapartError, match=r"(damaged|SUMS is missing).*start again with another --out") as told:
        train(recipe, tmp_path / "run", resume=True, evaluate=False)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["weights.safetensors", "emptied"])
def test_the_checkpoint_before_a_damaged_one_is_resumed_exactly(
    kind: str,
    tiny_recipe: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = recipe_of(tiny_recipe)
    train(recipe, tmp_path / "whole", evaluate=False)
    stop_after(3, recipe, tmp_path / "run", monkeypatch)
    newest, before = sorted((tmp_path / "run" / "checkpoints").glob("step-*"), reverse=True)
    damage(newest, kind)
    train(recipe, tmp_path / "run", resume=True, evaluate=False)
    told = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert len(told) == 1 and told[0].endswith(f"; continuing from the previous checkpoint, {before.name}")
    model = "model/model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()


def test_a_run_killed_before_its_first_checkpoint_validates_step_0_once(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    recipe = recipe_of(merged(tiny_recipe, {"training": {"steps": 2}, "validation": {"every": 2}}))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "save", killed)
        train(recipe, tmp_path / "run", evaluate=False)
    train(recipe, tmp_path / "run", resume=True, evaluate=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("event") == "validation"] == [0, 2]


def test_a_run_stopped_between_step_0_and_its_first_checkpoint_validates_step_0_once(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(merged(tiny_recipe, {"training": {"steps": 4}, "validation": {"every": 4}}))
    stop_after(1, recipe, tmp_path / "run", monkeypatch)
    train(recipe, tmp_path / "run", resume=True, evaluate=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("event") == "validation"] == [0, 4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("reinforce", r"loss [-\d.e]+, reward [-\d.e]+, recall@1.random\d+ [\d.]+, best [\d.]+ at step [03]"),
        ("mle", r"loss [\d.]+, loss [\d.]+, best [\d.]+ at step 3"),
    ],
)
def test_the_progress_line_shows_loss_reward_validation_and_the_best(
    kind: str, told: str, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    changes = {"validation": {**tiny_recipe["validation"], "select": "loss"}} if kind == "mle" else {}
    objective = tiny_recipe["objective"] if kind == "reinforce" else {"kind": kind}
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe_of(tiny_recipe, objective=objective, **changes)))
    monkeypatch.setattr("tellapart.utils.progress.LINE_SECONDS", 0.0)  # a line at each step
    done = cli("train", path, "--out", tmp_path / "run")
    lines = [line for line in done.err.splitlines() if line.startswith("training tiny: ")]
    assert len(lines) == 6 and "4 of 6" in lines[3], done.err
    assert re.search(f"left; {told}$", lines[3]), lines[3]


@pytest.mark.parametrize("table", ["captioner", "scorer"])
def test_a_name_that_is_no_models_leaves_no_folder(table: str, tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe = recipe_of(tiny_recipe, **{table: {**tiny_recipe.get(table, {}), "name": "no/such/folder"}})
    with pytest.raises(UsageError, match="no/such/folder"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_checkpoint_of_another_model_is_refused(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(tiny_recipe)
    stop_after(3, recipe, tmp_path / "run", monkeypatch)
    other = recipe_of(tiny_recipe, captioner={**tiny_recipe["captioner"], "train": ["mapper"]})
    run = Run(tmp_path / "run", other)
    with pytest.raises(TellapartError, match="checkpoint of a different model"):
        fit(TrainingSetup(other, upstream), run)


@pytest.mark.long
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    recipe, full = recipe_of(tiny_recipe), OSError(errno.ENOSPC, "No space left on device")
    calls = {"n": 0}

    def save_or_fail(*args: Any, **kwargs: Any) -> None:
        calls["n"] += 1
        if calls["n"] == 2:
            raise full
        torch_save(*args, **kwargs)

    torch_save = torch.save
    with monkeypatch.context() as patch, pytest.raises(TellapartError, match=r"No space left on device.*--resume"):
        patch.setattr(torch, "save", save_or_fail)
        train(recipe, tmp_path / "run", evaluate=False)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-0000000"]
    assert not list((tmp_path / "run").rglob(".*"))
    train(recipe, tmp_path / "run", resume=True, evaluate=False)


@pytest.mark.long
def test_a_recipe_named_as_a_model_is_trained_first_and_once(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = recipe_of(tiny_recipe, name="first", objective={"kind": "mle"})
    (tmp_path / "first.toml").write_text(to_toml(first))
    second = recipe_of(tiny_recipe, name="second", captioner={"name": str(tmp_path / "first.toml")})
    run = train(second, evaluate=False)
    assert run.folder.parent == Path("runs")
    made = Path("runs") / f"first-{content_of(first).fingerprint}"
    stamp = (made / "run.json").stat().st_mtime_ns
    train(recipe_of(second.model_dump(), seed=3), evaluate=False)
    assert (made / "run.json").stat().st_mtime_ns == stamp


def test_a_step_is_a_function_of_weights_and_number(tiny_recipe: dict[str, Any]) -> None:
    """The same step twice from the same weights gives the same loss, whatever was drawn in between."""
    logs = []
    for noise in (0, 7):
        setup = TrainingSetup(recipe_of(tiny_recipe), upstream)
        data, objective = setup.training_set(), objective_of(setup)
        trainable = TrainableParts(setup.learner, setup.trained_parts)
        optimizer = make_optimizer(trainable, setup.recipe.training)
        setup.learner.model.train()
        torch.rand(noise)
        scheduler = make_scheduler(optimizer, setup.recipe.training)
        logs.append([train_step(setup, data, objective, trainable, optimizer, scheduler, step) for step in range(2)])
    assert logs[0] == logs[1]


def test_trackers_write_into_the_run_and_missing_ones_are_named(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_recipe["training"]["trackers"] = ["tensorbord"]
    with pytest.raises(UsageError, match="did you mean 'tensorboard'"):
        train(recipe_of(tiny_recipe), tmp_path / "misspelt", evaluate=False)
    tiny_recipe["training"]["trackers"] = ["tensorboard"]
    with monkeypatch.context() as patch, pytest.raises(MissingExtra, match=r"pip install 'tellapart\[tensorboard\]'"):
        patch.setattr("accelerate.tracking.get_available_trackers", list)
        train(recipe_of(tiny_recipe), tmp_path / "missing", evaluate=False)
    pytest.importorskip("tensorboard", reason="no tensorboard here; type: pip install 'tellapart[tensorboard]'")
    train(recipe_of(tiny_recipe), tmp_path / "run", evaluate=False)
    events = list((tmp_path / "run").rglob("events.out.tfevents*"))
    assert events and b"reward" in events[0].read_bytes()


def start(recipe: Path, out: Path) -> ForkServerProcess:
    return fork(type_command, "train", recipe, "--out", out, "--resume", printed=out.with_suffix(".printed"))


@pytest.mark.parametrize(
    ("kills", "steps"), [pytest.param(6, 120, marks=pytest.mark.long), pytest.param(20, 400, marks=pytest.mark.slow)]
)
def test_kill_9_at_random_moments(tiny_recipe: dict[str, Any], tmp_path: Path, kills: int, steps: int) -> None:
    """Wherever they fall (loading, a step, a checkpoint, validation): the same final weights."""
    tiny_recipe["training"] |= {"steps": steps, "checkpoint_every": 4}
    recipe = recipe_of(tiny_recipe)
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe))
    finish([start(path, tmp_path / "whole")], tmp_path / "whole.printed")
    rng = random.Random(0)
    steps_at_kill = []
    for _ in range(kills):
        before = (tmp_path / "killed" / "log.jsonl").stat().st_size if steps_at_kill else 0
        process = start(path, tmp_path / "killed")
        until_log_grows(process, tmp_path / "killed" / "log.jsonl", before)
        time.sleep(rng.uniform(0, 0.4))
        process.kill()
        process.join()
        steps_at_kill.append(Run(tmp_path / "killed", recipe).last())
    assert not Run(tmp_path / "killed", recipe).finished, f"the run was over before it was killed {kills} times"
    finish([start(path, tmp_path / "killed")], tmp_path / "killed.printed")
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def until_log_grows(process: ForkServerProcess, log: Path, size: int) -> None:
    for _ in range(3000):
        if process.exitcode is not None or (log.is_file() and log.stat().st_size != size):
            return
        time.sleep(0.02)


def test_validation_names_the_pool_that_it_has(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """Of 30 pictures: no hundred that there is not, and the checkpoint is chosen among those that there are."""
    tiny_recipe["validation"] |= {"select": "recall@1.random100"}
    run = train(check_recipe(tiny_recipe, "test"), tmp_path / "run", evaluate=False)
    validations = [line for line in map(json.loads, run.log_path.read_text().splitlines()) if "best" in line]
    assert validations and all("recall@1.random30" in line and "recall@1.random100" not in line for line in validations)
    assert validations[0]["best"] is True


def test_the_last_step_is_kept_where_the_recipe_says_so(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """Also where every validation is worse than the one before."""
    tiny_recipe["validation"] |= {"select": "step"}
    tiny_recipe["training"] |= {"learning_rate": 1.0}
    run = train(check_recipe(tiny_recipe, "test"), tmp_path / "run", evaluate=False)
    validations = [line for line in map(json.loads, run.log_path.read_text().splitlines()) if "best" in line]
    assert len(validations) > 1 and all(line["best"] for line in validations)
    saved = load_file(run.folder / "model" / "model.safetensors")
    last = load_file(run.last().folder / "weights.safetensors")  # type: ignore[union-attr]
    known = {key: last[key] for key in last.keys() & saved.keys()}
    assert known and all(torch.equal(saved[key], value) for key, value in known.items())


def test_the_cosine_by_epoch(tiny_recipe: dict[str, Any]) -> None:
    """As LAVIS sets it: within an epoch the rate stays, and epoch e has (1 + cos(π e / epochs)) / 2 of it."""
    training = {**tiny_recipe["training"], "steps": 20, "schedule": "cosine", "schedule_every": 4, "learning_rate": 1.0}
    settings = recipe_of(tiny_recipe, training=training).training
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, rates = make_scheduler(optimizer, settings), []
    for _ in range(20):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([(1 + math.cos(math.pi * (step // 4) / 5)) / 2 for step in range(20)])
    with pytest.raises(UsageError, match="schedule_every requires a schedule that changes the learning"):
        recipe_of(tiny_recipe, training={**training, "schedule": "constant"})


@pytest.mark.long
def test_a_run_without_a_model_says_the_command_that_finishes_it(
    cli: Cli, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(3, recipe_of(tiny_recipe), tmp_path / "run", monkeypatch)
    caption = ("caption", tmp_path / "run", "scenes:plain?n=3", "-o", tmp_path / "c.jsonl")
    message, _, command = cli(*caption).line.partition("; run: tellapart ")
    assert message.endswith("run is a run without a finished model")
    assert cli(*shlex.split(command)).status == 0
    assert cli(*caption).status == 0


@pytest.mark.long
def test_training_stops_where_the_selected_metric_reaches_its_goal_and_resumes_to_there(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper 2, table 14: "until R@1 is equal". The goal is what the loss of the whole run was at step 4."""
    taught = {**tiny_recipe, "objective": {"kind": "mle"}}
    taught["training"] = {**tiny_recipe["training"], "steps": 8, "checkpoint_every": 3, "log_every": 1}
    checks = {**tiny_recipe.get("validation", {}), "every": 2, "select": "loss"}
    whole = recipe_of(taught, validation=checks)
    train(whole, tmp_path / "whole", evaluate=False)
    lines = [json.loads(line) for line in (tmp_path / "whole/log.jsonl").read_text().splitlines()]
    found = {line["step"]: line["loss"] for line in lines if line.get("event") == "validation"}
    assert found[4] < min(found[0], found[2]), "the loss falls"
    recipe = recipe_of(taught, validation={**checks, "until": found[4]})
    assert content_of(recipe).fingerprint != content_of(whole).fingerprint
    train(recipe, tmp_path / "until", evaluate=False)
    assert losses(tmp_path / "until") == losses(tmp_path / "whole")[:4]
    last = json.loads((tmp_path / "until/log.jsonl").read_text().splitlines()[-1])
    assert last == {"event": "reached", "step": 4, "loss": pytest.approx(found[4])} | {
        key: value for key, value in last.items() if key not in ("event", "step", "loss")
    }
    stop_after(3, recipe, tmp_path / "stopped", monkeypatch)
    train(recipe, tmp_path / "stopped", resume=True, evaluate=False)
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "until"))
    reached = recipe_of(taught, validation={**checks, "until": 1e9})
    train(reached, tmp_path / "at once", evaluate=False)
    assert losses(tmp_path / "at once") == []
