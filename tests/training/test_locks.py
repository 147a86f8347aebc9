"""One process at a time in a run's folder, and a line that says which."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked import finish, fork, type_command

from tellapart.errors import TellapartError, UsageError
from tellapart.recipe.reading import check_recipe, to_toml
from tellapart.training.runs import train
from tellapart.utils.locks import LOCK, locked

HOLD = """
import pathlib, sys, tellapart.utils.locks
with tellapart.utils.locks.locked(pathlib.Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the folder until its stdin is closed, or it is killed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process


def test_who_holds_a_folder_is_said_and_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with held_by_another(folder) as process:
        with pytest.raises(UsageError) as told, locked(folder, wait=False):
            pass
        assert f"process {process.pid} on host {socket.gethostname()}" in str(told.value) and "another folder" in str(
            told.value
        )
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (folder / LOCK).is_file()  # what it left says nothing
    with locked(folder, wait=False):
        assert json.loads((folder / LOCK).read_text())["process"] == os.getpid()
    assert not (folder / LOCK).exists()


def test_a_folder_made_for_the_lock_alone_is_removed(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b", wait=False):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_its_last_holder_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Path.mkdir` finds it there, looks whether it is a folder, and by then it is not."""
    made, mkdir = [], os.mkdir

    def removed_once(path: Path, mode: int = 0o777) -> None:
        made.append(path)
        if len(made) == 1:
            raise FileExistsError(path)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", removed_once)
    with locked(tmp_path / "run", wait=False):
        assert len(made) == 2
    (tmp_path / "run").write_text("a file")
    with pytest.raises(TellapartError, match="File exists; choose another folder"), locked(tmp_path / "run", wait=True):
        pass


def test_many_who_wait_hold_it_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.utils.locks.POLL_SECONDS", 0.001)
    inside: list[int] = []
    most: list[int] = []

    def take(number: int) -> None:
        for _ in range(10):
            with locked(tmp_path / "run", wait=True):
                inside.append(number)
                time.sleep(0.001)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 60 and not (tmp_path / "run" / LOCK).exists()


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys, in which not even root may write a file")
def test_a_folder_that_is_not_writable_is_an_error_with_a_remedy() -> None:
    with (
        pytest.raises(TellapartError, match=r"^/sys: .*; choose another folder, or make this one writable$"),
        locked(Path("/sys"), wait=False),
    ):
        pass


def test_a_run_that_another_process_works_on_is_left_alone(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe = check_recipe(tiny_recipe, "test")
    with held_by_another(tmp_path / "run") as process:
        for resume in (False, True):
            with pytest.raises(UsageError, match=f"run is in use by process {process.pid} on host"):
                train(recipe, tmp_path / "run", resume=resume)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_two_trainings_that_share_an_upstream_train_it_once(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    first = {**tiny_recipe, "name": "first", "objective": {"kind": "mle"}}
    first["training"] = {**first["training"], "steps": 60}
    (tmp_path / "first.toml").write_text(to_toml(check_recipe(first, "test")))
    processes = []
    for seed in (0, 1):
        table = {**tiny_recipe, "name": f"second{seed}", "captioner": {"name": str(tmp_path / "first.toml")}}
        (tmp_path / f"second{seed}.toml").write_text(to_toml(check_recipe({**table, "seed": seed}, "test")))
        processes.append(fork(type_command, "train", f"second{seed}.toml", printed=tmp_path / "printed", cwd=tmp_path))
    finish(processes, tmp_path / "printed")
    said = (tmp_path / "printed").read_text().splitlines()
    assert sum("waiting for" in line and "on host" in line for line in said) == 1
    (made,) = (tmp_path / "runs").glob("first-*")
    steps = [json.loads(line) for line in (made / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "event" not in line] == list(range(1, 61))
    assert not list((tmp_path / "runs").rglob(LOCK))
