"""SIGTERM while Ray starts, and after it has ended, stops a command like Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("ray")

STARTING = """
import os, signal, threading, time
from pathlib import Path
from tellapart.jobs.cluster import connected
from tellapart.jobs.worker_share import Workers

def stop(number, frame):
    raise KeyboardInterrupt

def terminate_when_ray_handles_signals():
    while True:
        mask = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigCgt"))
        if int(mask.split()[1], 16) >> (signal.SIGTRAP - 1) & 1:  # Ray handles SIGTRAP and SIGTERM at the same time
            os.kill(os.getpid(), signal.SIGTERM)
            return
        time.sleep(0.001)

signal.signal(signal.SIGTERM, stop)
threading.Thread(target=terminate_when_ray_handles_signals, daemon=True).start()
try:
    with connected(Workers(1)):
        time.sleep(60)
except KeyboardInterrupt:
    time.sleep(4)  # longer than Ray's alarm
    print("interrupted")
"""
ENDED = """
import os, signal, time
from tellapart.jobs.cluster import connected
from tellapart.jobs.worker_share import Workers

def stop(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, stop)
with connected(Workers(1)):
    pass
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.long
@pytest.mark.parametrize("script", [STARTING, ENDED], ids=["starting", "ended"])
def test_sigterm_interrupts_and_does_not_abort(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr[-2000:]
