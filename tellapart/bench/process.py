"""Run a command in a process of its own and measure its time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.errors import TellapartError


@dataclass(frozen=True)
class CompletedRun:
    """The JSON that a command printed, its seconds from start to end, and its peak memory in MB."""

    output: Any
    seconds: float
    peak_mb: float


def run(command: Sequence[str]) -> CompletedRun:
    """Run a command that prints JSON. Raises `TellapartError` with its last line if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            lines = err.read().decode(errors="replace").strip().split("\n")
            raise TellapartError(f"{' '.join(command)}: failed with status {process.returncode}: {lines[-1]}")
        # In kB on Linux, in bytes on macOS. Never below the memory of this process when it started the other.
        return CompletedRun(
            json.loads(out.read()), seconds, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
        )
