"""Two processes, as torchrun, accelerate launch and ``--nproc`` start them: one run's weights, and memory in shares."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from safetensors.torch import load_file
from test_cross_fitted import scorer_recipe

from tellapart.recipe.reading import check_recipe, read_recipe, to_toml
from tellapart.training.runs import train

ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
# glibc gives blocks above this back when they are freed, so a peak repeats to 1 MB; without it, to 200 MB.
ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"] = "1000000"
STEPS, RATE = 3, 1e-4
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    # On CPUs accelerate starts several processes with --multi_gpu alone.
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"],
}
RECIPE = f"""
name = "launched"
[data]
train = "scenes:plain?n=30&split=train"
validation = "scenes:plain?n=10&split=validation"
[captioner.new]
vision = "SCORER"
width = 1280
layers = 2
heads = 8
dropout = 0.0
[objective]
kind = "mle"
[training]
steps = {STEPS}
batch_size = 7
learning_rate = {RATE}
log_every = 1
[validation]
every = {STEPS}
select = "loss"
"""


def start(*command: object, cwd: Path | None = None, limit: float = 1200) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=limit, check=False, cwd=cwd,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def recipe(tiny_scorer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner of 200 MB, which memory shows beside what every process has."""
    path = tmp_path_factory.mktemp("launched") / "r.toml"
    path.write_text(RECIPE.replace("SCORER", str(tiny_scorer)))
    return path


@pytest.fixture(scope="module")
def whole(recipe: Path) -> Path:
    """Two ranks that torchrun started."""
    out = recipe.parent / "torchrun"
    start(*LAUNCHERS["torchrun"], "-m", "tellapart", "train", recipe, "--out", out, "--precision", "fp32")
    return out


@pytest.fixture(scope="module")
def shared(recipe: Path) -> Path:
    """Two ranks that accelerate launch started, which share out what learns."""
    out, sharding = recipe.parent / "accelerate", "training.sharding=full"
    command = ("tellapart", "train", recipe, "--out", out, "--precision", "fp32", "--set", sharding)
    start(*LAUNCHERS["accelerate"], "-m", *command)
    return out


def memory(folder: Path) -> list[dict[str, int]]:
    found: list[dict[str, int]] = json.loads((folder / "run.json").read_text())["memory"]
    return found


def losses(folder: Path) -> list[float]:
    records = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record.get("event") != "validation"]


def assert_same(one: Path, other: Path) -> None:
    """In float32: Adam moves a weight by up to the rate whatever its gradient, so single ones may differ."""
    assert len(losses(one)) == STEPS
    assert losses(other) == pytest.approx(losses(one), rel=1e-5)
    weights: list[dict[str, Any]] = [
        load_file(folder / "checkpoints" / f"step-{STEPS:07d}" / "weights.safetensors") for folder in (one, other)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        difference = (tensor - weights[1][name]).abs()
        assert float(difference.mean()) < 1e-2 * RATE, name
        assert float(difference.max()) <= 2.1 * STEPS * RATE, name


@pytest.mark.long
def test_torchrun_and_accelerate_launch_train_the_run_of_one_process(
    recipe: Path, whole: Path, shared: Path, tmp_path: Path
) -> None:
    train(read_recipe(recipe), tmp_path / "one", evaluate=False)
    for folder in (whole, shared):
        assert len(memory(folder)) == 2
        assert (folder / "report.html").is_file()
        assert_same(tmp_path / "one", folder)


@pytest.mark.long
def test_the_peak_of_every_rank_falls_where_ranks_share_what_learns(whole: Path, shared: Path) -> None:
    """On either rank by more than half the weights, four fifths on this model (docs/howto/ranks.md)."""
    size = memory(whole)[0]["weights"]
    assert size > 200e6
    peaks = [[rank["peak"] for rank in memory(folder)] for folder in (whole, shared)]
    assert min(peaks[0]) > 4 * size
    assert max(peaks[1]) < min(peaks[0]) - 0.6 * size


@pytest.mark.long
def test_finetune_in_two_processes_is_the_run_of_one(
    cli: Cli, tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    captioner = tmp_path / "captioner"
    shutil.copytree(tiny_captioner, captioner)
    config = json.loads((captioner / "config.json").read_text())
    config["text_config"] |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    (captioner / "config.json").write_text(json.dumps(config))
    (captioner / "SHA256SUMS").unlink()  # as one who changes the folder does
    settings = ("--objective", "mle", "--steps", STEPS, "--rate", RATE, "--precision", "fp32", "--max-tokens", 6)
    command = ("finetune", captioner, "scenes:plain?n=40&split=train", "--scorer", tiny_scorer, *settings, "--json")
    command += ("--set", "training.log_every=1")
    printed = start("tellapart", *command, "--out", tmp_path / "two", "--nproc", 2)
    assert "after" in json.loads(printed)["systems"]  # by one of the processes
    done = cli(*command, "--out", tmp_path / "one")
    assert done.status == 0, done.err
    assert len(memory(tmp_path / "two")) == 2
    assert (tmp_path / "two" / "model" / "README.md").is_file()
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.long
def test_two_ranks_train_the_recipes_that_name_its_scorers_and_find_them_when_they_are_finished(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    """The form of the shipped flickr8k_truthful, from the folder above a clone."""
    (tmp_path / "tellapart" / "src").mkdir(parents=True)
    scorers = [scorer_recipe(tiny_recipe, tmp_path, part) for part in ("1,2", "3")]
    reward = {"kind": "self_retrieval", "scorers": scorers, "combine": "lowest"}
    recipe, out = tmp_path / "r.toml", tmp_path / "out"
    table = tiny_recipe | {
        "objective": tiny_recipe["objective"] | {"rewards": [reward]},
        "training": tiny_recipe["training"] | {"steps": 2},
        "evaluation": tiny_recipe["evaluation"] | {"eval_scorers": [scorers[0]]},
    }
    recipe.write_text(to_toml(check_recipe(table, "test")))

    def trained() -> dict[str, bytes]:
        start("tellapart", "train", recipe, "--out", out, "--nproc", 2, cwd=tmp_path, limit=240)
        assert (out / "report.html").is_file() and len(memory(out)) == 2
        return {folder.name: (folder / "run.json").read_bytes() for folder in (tmp_path / "runs").iterdir()}

    first = trained()
    assert len(first) == 2
    shutil.rmtree(out)
    assert trained() == first, "finished scorers are not touched"
    start("tellapart", "caption", out, "scenes:plain?n=3", "-o", "c.jsonl", "--workers", 2, cwd=tmp_path, limit=240)
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 3
