"""Runs a command in a separate process and measures its time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.errors import TellapartError


@dataclass(frozen=True)
class CompletedRun:
    """A command's printed JSON, its wall-clock seconds, and its peak memory in MB."""

    output: Any
    seconds: float
    peak_mb: float


# A program's peak memory is never below that of the process that started it, until that one is small: this one.
_MEASURED = """\
import json, os, sys, time
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - start
os.write(int(sys.argv[1]), json.dumps([os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss]).encode())
"""


def run(command: Sequence[str]) -> CompletedRun:
    """Runs a command that prints JSON. Raises `TellapartError` with its last line if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as measured:
        number = measured.fileno()
        # An installed package is compiled already: a process that compiles what it imports would measure that.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        measuring = [sys.executable, "-I", "-S", "-c", _MEASURED, str(number), *command]
        process = subprocess.Popen(
            measuring,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=[number],
            start_new_session=True,
            env=environment,
        )
        try:
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        for file in (out, err, measured):
            file.seek(0)
        found = measured.read()
        status, seconds, peak = json.loads(found) if found else (process.returncode, 0.0, 0)
        if status:
            lines = err.read().decode(errors="replace").strip().split("\n")
            raise TellapartError(f"{' '.join(command)}: failed with status {status}: {lines[-1]}")
        # In kB on Linux, in bytes on macOS.
        return CompletedRun(json.loads(out.read()), seconds, peak / (1e6 if sys.platform == "darwin" else 1e3))
