"""Rows that several processes make, and what happens where one of them fails."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, signal, sys, time
import numpy as np
from tellapart.utils import forks
forks.cores = lambda: 3
own = os.getpid()

def work(rows):
    if {condition}:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)  # otherwise, one process may do the work of two before the second one has started
    return np.array([[row, row * row, os.getpid()] for row in rows], dtype=float).reshape(-1, 3)

found = forks.rows_of(work, {count}, 10)
print(json.dumps([found[:, :2].tolist(), len(set(found[:, 2])), own in found[:, 2]]))
try:
    os.wait()
except ChildProcessError:
    print("none left")
"""


def made(count: int, condition: str = "False", before: str = "") -> tuple[list[list[float]], int, bool]:
    """The rows, in how many processes they were made, and whether this was one; no process is left behind."""
    script = before + SCRIPT.format(count=count, condition=condition)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    printed, left = done.stdout.splitlines()
    assert left == "none left" and not done.stderr
    rows, processes, own = json.loads(printed)
    return rows, processes, own


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_the_rows_are_those_of_one_process() -> None:
    plain = [[float(row), float(row * row)] for row in range(35)]
    assert made(35) == (plain, 3, True)
    assert made(29) == (plain[:29], 2, True), "each does ten rows or more"
    assert made(19) == (plain[:19], 1, True)
    assert made(0) == ([], 0, False)


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_the_work_of_a_process_that_was_killed_is_done_here() -> None:
    plain = [[float(row), float(row * row)] for row in range(35)]
    rows, _, here = made(35, "os.getpid() != own and 20 in rows")
    assert rows == plain and here


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_a_process_may_die_before_all_rows_are_submitted() -> None:
    slow = """
import time
from concurrent.futures import ProcessPoolExecutor
submit = ProcessPoolExecutor.submit

def later(pool, *work):
    future = submit(pool, *work)
    time.sleep(1)
    return future

ProcessPoolExecutor.submit = later
"""
    plain = [[float(row), float(row * row)] for row in range(35)]
    rows, _, here = made(35, "os.getpid() != own and 20 in rows", before=slow)
    assert rows == plain and here


def test_beside_torch_and_other_threads_nothing_forks() -> None:
    assert made(35, before="import sys; sys.modules['torch'] = sys\n")[1] == 1
    waiting = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    assert made(35, before=waiting)[1] == 1
