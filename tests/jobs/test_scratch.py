"""What workers leave in the folder of temporary files when they are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray_nodes import Driver
from test_faults import code, write_tars

__all__ = ["code"]  # a fixture

WORK = """
import tempfile, time
from tellapart.jobs.scratch import scratch_folder
tempfile.tempdir = str(scratch_folder())
with tempfile.TemporaryDirectory(prefix="tellapart-part-") as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def left(folder: Path) -> list[str]:
    """What lies in the folder of temporary files once cleaning has had ten seconds."""
    end = time.monotonic() + 10
    while (names := [path.name for path in folder.glob("tellapart-*")]) and time.monotonic() < end:
        time.sleep(0.1)
    return names


def test_a_killed_worker_leaves_no_temporary_folder(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert folder.is_dir() and folder.parents[1] == tmp_path
    process.kill()
    process.wait()
    assert left(tmp_path) == []


@pytest.mark.long
def test_ctrl_c_of_a_command_with_workers_leaves_no_temporary_folder(
    code: None, tiny_captioner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # the address of a socket is short
    write_tars(tmp_path / "data", 4, 100)
    model = f"poisoned:make?model={tiny_captioner}&delay=0.5"
    driver = Driver("caption", model, tmp_path / "data", "-o", tmp_path / "c.jsonl", "--beams", 1, "--max-tokens", 3,
                    "--workers", 2, log=tmp_path / "log")  # fmt: skip
    end = time.monotonic() + 120
    while not list((tmp_path / "tmp").glob("**/tellapart-part-*")):
        assert time.monotonic() < end and driver.process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.1)
    driver.process.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130, (tmp_path / "log").read_text()
    assert left(tmp_path / "tmp") == []
