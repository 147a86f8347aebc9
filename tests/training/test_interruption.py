"""What a training run does when it is stopped: by Ctrl-C, with its launcher, and when one of its ranks is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from command_line import Cli
from safetensors.torch import load_file

from tellapart.training import loop
from tellapart.training.interruption import Interruption

WORLD = "scenes:plain?n=60&split=train"
SETTINGS = ("--objective", "mle", "--max-tokens", 6, "--set", "training.log_every=1", "--set", "training.batch_size=8")
RARELY = ("--set", "training.checkpoint_every=100000", "--set", "validation.every=100000")


def logged(out: Path) -> list[int]:
    """The steps of the log."""
    if not (out / "log.jsonl").is_file():
        return []
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines() if line.endswith("}")]
    return [line["step"] for line in lines if "event" not in line]


def saved(out: Path) -> list[int]:
    """The steps of the checkpoints."""
    return sorted(int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*"))


def test_ctrl_c_saves_the_step_that_it_interrupts_and_the_same_command_ends_as_if_nothing_had_been(
    cli: Cli, tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("finetune", tiny_captioner, WORLD, "--scorer", tiny_scorer, *SETTINGS, *RARELY, "--steps", 8)
    step = loop.train_step

    def interrupted(*given: Any) -> Any:
        if given[-1] == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*given)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        done = cli(*command, "-o", tmp_path / "twice")
    assert done.status == 130 and done.err.count("stopped") == 1
    assert logged(tmp_path / "twice") == [1, 2, 3, 4, 5] and saved(tmp_path / "twice")[-1] == 5
    for name in ("twice", "once"):
        assert cli(*command, "-o", tmp_path / name).status == 0
        assert logged(tmp_path / name) == list(range(1, 9))
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("twice", "once"))
    assert all(torch.equal(first[key], second[key]) for key in second)


def test_a_second_ctrl_c_stops_at_once_and_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.requested
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def launched(tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two ranks that train into ``out`` for ever; what they print is in ``printed``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(Path(__file__).with_name("watched_run.py")), "finetune", str(tiny_captioner), WORLD, "--scorer"]
    command += [str(tiny_scorer), *map(str, (*SETTINGS, *RARELY)), "--steps", "100000", "-o", str(tmp_path / "out")]
    environment = os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "printed").open("wb") as printed:
        launcher = subprocess.Popen(command, stderr=printed, stdout=printed, env=environment)
    ranks: list[psutil.Process] = []
    try:
        until(lambda: len(logged(tmp_path / "out")) > 3, 120)
        ranks += psutil.Process(launcher.pid).children()
        yield launcher
    finally:
        for process in (launcher, *ranks):
            if isinstance(process, subprocess.Popen) or process.is_running():
                process.kill()
        launcher.wait()


def until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.long
def test_a_stopped_rank_is_named_and_ranks_without_a_launcher_save_and_end(
    launched: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ranks = psutil.Process(launched.pid).children()
    assert len(ranks) == 2
    (second,) = (rank for rank in ranks if rank.environ()["RANK"] == "1")
    second.suspend()
    until(lambda: b"has not responded" in (tmp_path / "printed").read_bytes(), 30)
    printed = (tmp_path / "printed").read_text()
    assert f"rank 1 of 2 (process {second.pid} on " in printed and f"kill -CONT {second.pid}" in printed
    second.resume()
    steps = len(logged(tmp_path / "out"))
    until(lambda: len(logged(tmp_path / "out")) > steps, 30)

    launched.kill()
    launched.wait()
    until(lambda: not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks), 60)
    assert saved(tmp_path / "out")[-1] == logged(tmp_path / "out")[-1] > steps
    assert "its launcher" in (tmp_path / "printed").read_text()


@pytest.mark.long
def test_ranks_end_when_their_nproc_launcher_is_killed(tmp_path: Path, tiny_captioner: Path, tiny_scorer: Path) -> None:
    """Nothing runs on in the background after ``kill -9`` of the command that was typed; the last step is saved."""
    command = [sys.executable, "-m", "tellapart", "finetune", str(tiny_captioner), WORLD, "--scorer", str(tiny_scorer)]
    command += [*map(str, (*SETTINGS, *RARELY)), "--steps", "100000", "-o", str(tmp_path / "out"), "--nproc", "2"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "printed").open("wb") as printed:
        launcher = subprocess.Popen(command, stderr=printed, stdout=printed, env=environment)
    ranks: list[psutil.Process] = []
    try:
        until(lambda: len(logged(tmp_path / "out")) > 3, 120)
        ranks += psutil.Process(launcher.pid).children(recursive=True)
        assert len(ranks) >= 2
        launcher.kill()
        launcher.wait()
        until(lambda: not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks), 60)
        assert saved(tmp_path / "out")[-1] == logged(tmp_path / "out")[-1]
    finally:
        for process in (launcher, *ranks):
            if process.is_running() if isinstance(process, psutil.Process) else process.poll() is None:
                process.kill()
