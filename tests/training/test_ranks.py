"""Several processes train as one does."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ranks_run
import torch
from command_line import Cli
from forked import finish, fork, fork_ranks, type_command
from ranks_run import CAPTIONS, RUNS, STARTS, STEPS
from safetensors.torch import load_file

from tellapart.cli.launch import INTERRUPTED, explained
from tellapart.models import ranks

RUN = Path(__file__).parent / "ranks_run.py"
# Each way to share a batch, and each of what the issue of several ranks names, in as few runs as hold it.
FEW = [
    "smile",
    "mle_parts",
    "running_mean",
    "group",
    "bags_lora_greedy_parts",
    "hard_exploration_parts",
    "vision_pmi",
    "self_distillation",
    "contrastive",
]
ENVIRONMENT = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}


def command(ranks: int) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return torchrun if ranks > 1 else [sys.executable]


def runs(ranks: int, out: Path, captioner: Path, scorer: Path, names: list[str]) -> Path:
    """Trains these, or all, to the end; a rank but the first that writes there fails. Launchers: test_launchers.py."""
    out.mkdir(parents=True, exist_ok=True)
    work = (ranks_run.main, out, str(captioner), str(scorer), names)
    processes = fork_ranks(ranks, *work, printed=out / "printed", environment=ENVIRONMENT)
    finish(processes, out / "printed")
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{STEPS:07d}" / "weights.safetensors")


def logged(folder: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in each.items() if not isinstance(value, str)} for each in records]


def sampled(folder: Path) -> dict[int, list[str]]:
    """The captions of each step that wrote some. Where a step was done again, it wrote the same."""
    found: dict[int, list[str]] = {}
    path = folder / CAPTIONS
    for line in path.read_text().splitlines() if path.is_file() else []:
        record = json.loads(line)
        assert found.setdefault(record["step"], record["texts"]) == record["texts"], (folder.name, record["step"])
    return found


def assert_same(one: Path, other: Path) -> None:
    """The same weights, the same log and the same captions."""
    expected, found = weights(one), weights(other)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.allclose(tensor, found[name], rtol=0, atol=1e-6), (one.name, name)
    assert sampled(one) == sampled(other)
    records = list(zip(logged(one), logged(other), strict=True))
    assert len(records) >= STEPS
    for there, here in records:
        assert here == pytest.approx(there, rel=1e-6, abs=1e-6), one.name


@pytest.fixture(scope="module")
def alone(tiny_captioner: Path, tiny_scorer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The few runs by one process."""
    return runs(1, tmp_path_factory.mktemp("alone"), tiny_captioner, tiny_scorer, FEW)


@pytest.mark.long
def test_two_ranks_train_as_one(alone: Path, tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    two = runs(2, tmp_path, tiny_captioner, tiny_scorer, FEW)
    for name in FEW:
        assert_same(alone / name, two / name)
        if RUNS[name].get("objective", {}).get("kind", "reinforce") in ("reinforce", "self_distillation"):
            captions = sampled(two / name)
            assert sorted(captions) == list(range(STEPS))
            assert len({text for texts in captions.values() for text in texts}) > STEPS


@pytest.mark.slow
def test_four_ranks_train_as_one_in_every_way_to_learn(tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    one, two, four = (runs(n, tmp_path / str(n), tiny_captioner, tiny_scorer, []) for n in (1, 2, 4))
    for name in RUNS:
        assert_same(one / name, two / name)
        assert_same(one / name, four / name)


OFTEN = "running_mean:often"  # a baseline with a state; a checkpoint of every step


def starts(folder: Path) -> list[dict[str, int]]:
    """Of each start that came to a step: how many ranks, and which step."""
    path = folder / STARTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def start_slowly(ranks: int, pause: float, *arguments: object) -> subprocess.Popen[str]:
    """The run, which waits ``pause`` seconds before each step."""
    environment = ENVIRONMENT | {"PAUSE": str(pause)}
    return subprocess.Popen(
        [*command(ranks), str(RUN), *map(str, arguments)], env=environment, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.long
def test_a_run_of_two_ranks_that_loses_one_goes_on_alone_as_if_nothing_were(
    alone: Path, tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    out = tmp_path / OFTEN
    process = start_slowly(2, 0.2, tmp_path, tiny_captioner, tiny_scorer, OFTEN)
    victim = wait_for_ranks(process, 2)[1]
    wait_for_file(out / "checkpoints" / "step-0000003", process)
    victim.kill()
    assert process.wait(60) != 0
    runs(1, tmp_path, tiny_captioner, tiny_scorer, [OFTEN])
    (first, second) = starts(out)
    assert first == {"ranks": 2, "step": 0}
    assert second["ranks"] == 1 and 3 <= second["step"] < STEPS
    assert_same(alone / "running_mean", out)


@pytest.mark.slow
def test_killed_ten_times_with_other_numbers_of_ranks_the_run_is_the_same(
    tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    """kill -9 of a random rank at a random moment; the next start has another number of ranks.

    One kill of five comes while the processes start. The others come within a second and a half of the start's first
    step, of which each takes half a second and makes a checkpoint: so ten kills do not outlast the run.
    """
    plain = runs(1, tmp_path / "plain", tiny_captioner, tiny_scorer, ["running_mean"]) / "running_mean"
    out, drawn = tmp_path / "killed" / OFTEN, random.Random(7)
    for kill in range(10):
        ranks, begun = (2, 4, 1, 2)[kill % 4], len(starts(out))
        process = start_slowly(ranks, 0.5, out.parent, tiny_captioner, tiny_scorer, OFTEN)
        victim = drawn.choice(wait_for_ranks(process, ranks))
        if kill % 5:
            wait_for(lambda begun=begun: len(starts(out)) > begun, process)
        time.sleep(drawn.uniform(0, 1.5 if kill % 5 else 6))
        assert process.poll() is None, "the run ended before it was killed"
        victim.kill()
        assert process.wait(60) != 0
    runs(4, out.parent, tiny_captioner, tiny_scorer, [OFTEN])
    resumed = [start for start in starts(out) if start["step"] > 0]
    assert len(resumed) >= 5, starts(out)
    assert {start["ranks"] for start in resumed} == {1, 2, 4}
    assert len({start["step"] for start in resumed}) >= 4
    assert_same(plain, out)


def wait_for_ranks(process: subprocess.Popen[str], ranks: int) -> list[psutil.Process]:
    """The processes that train: the one that was started, or torchrun's children."""
    parent = psutil.Process(process.pid)
    for _ in range(600):
        found = [parent] if ranks == 1 else parent.children()
        if len(found) == ranks:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{ranks} ranks did not start")


RECIPE = """
name = "small"
[data]
train = "scenes:plain?n=60"
validation = "scenes:plain?n=30&split=validation"
[captioner]
name = "{captioner}"
[scorer]
name = "{scorer}"
[objective]
kind = "reinforce"
decoding = {{ kind = "sample", samples = 2, max_tokens = 6 }}
[training]
steps = 200
batch_size = 20
learning_rate = 1e-3
checkpoint_every = 10
[validation]
every = 100
decoding = {{ max_tokens = 6 }}
"""


@pytest.mark.long
def test_a_rank_that_dies_ends_the_run_with_one_line_and_one_process_goes_on(
    tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    recipe, out = tmp_path / "r.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(captioner=tiny_captioner, scorer=tiny_scorer))
    train = [sys.executable, "-m", "tellapart", "train", str(recipe), "--out", str(out)]
    process = subprocess.Popen([*train, "--nproc", "2"], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    victim = wait_for_ranks(process, 2)[1]
    wait_for_file(out / "checkpoints" / "step-0000020", process)
    victim.kill()
    begin = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 60
    assert process.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("tellapart: rank 1 was terminated by SIGKILL")
    assert "Traceback" not in errors
    words = (*train[3:], "--resume", "--set", "training.steps=200")
    finish([fork(type_command, *words, printed=tmp_path / "printed", environment=ENVIRONMENT)], tmp_path / "printed")
    assert (out / "model" / "config.json").is_file()
    assert logged(out)[-1]["step"] == 200


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    wait_for(path.exists, process)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it has, or the process ends, which is a failure."""
    while process.poll() is None and not happened():
        time.sleep(0.05)
    assert happened(), process.stderr.read() if process.stderr else ""


def test_wrong_usage_is_one_line_whatever_the_number_of_processes(cli: Cli) -> None:
    done = cli("train", "no_such_recipe.toml", "--nproc", 0)
    assert done.status == 2
    assert "--nproc" in done.err


class Failure:
    """What torch's launcher tells of a process that failed."""

    def __init__(self, exitcode: int, timestamp: int, **info: Any) -> None:
        self.exitcode, self.timestamp = exitcode, timestamp
        self.error_file_data = {"message": {"message": "", "extraInfo": info}} if info else {"message": ""}


def test_the_cause_is_told_and_not_what_followed_from_it() -> None:
    lost = Failure(1, 10, line="RuntimeError: gloo", lost=True, traceback="")
    stopped, killed = Failure(-15, 9), Failure(-9, 12)
    own = Failure(2, 11, line="no such column", lost=False, traceback="")
    assert explained({0: lost, 1: killed, 2: stopped})[0].startswith("rank 1 was terminated by SIGKILL")  # type: ignore[dict-item]
    assert explained({0: lost, 1: own, 2: stopped}) == ("no such column", 2)  # type: ignore[dict-item]
    with pytest.raises(KeyboardInterrupt):
        explained({0: Failure(INTERRUPTED, 10, line="stopped", lost=False, traceback="")})  # type: ignore[dict-item]


@pytest.mark.parametrize(("total", "ranks_count"), [(13, 4), (4, 4), (3, 4), (60, 1)])
def test_shares_cover_all_rows_once(total: int, ranks_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "count", lambda: ranks_count)
    rows = []
    for place in range(ranks_count):
        monkeypatch.setattr(ranks, "index", lambda place=place: place)
        rows.append(list(range(total))[ranks.share(total)])
    assert [row for part in rows for row in part] == list(range(total))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@pytest.mark.long
def test_accelerate_that_starts_one_process_of_two_is_told(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1"]
    for processes, told in ((2, True), (1, False)):
        done = subprocess.run(
            [*launch, "--num_processes", str(processes), "-m", "tellapart", "train", "no_such_recipe.toml"],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode != 0
        assert ("accelerate launch was asked for several" in done.stderr) == told


LATE = """
import sys, time
from datetime import timedelta
from tellapart.models import collectives, ranks

ranks.start()
if sys.argv[1] == "late":
    ranks.PATIENCE = timedelta(seconds=2)
    if ranks.is_main():
        time.sleep(6)
    ranks.barrier("pictures are encoded")
with ranks.main_first("pictures are encoded"):
    collectives.from_main(1)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("late", "rank 1 of 2 waited 0:00:02 for the other ranks at this step: pictures are encoded; check"),
        ("alone", "Only one rank called a collective operation, at this step: pictures are"),
    ],
)
def test_a_rank_that_waits_in_vain_says_for_what(case: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = subprocess.run(
        [*command(2), str(tmp_path / "late.py"), case],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and told in done.stderr, done.stderr[-4000:]
