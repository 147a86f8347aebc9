"""Runs a command in a separate process and measures its time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from tellapart.errors import TellapartError


@dataclass(frozen=True)
class CompletedRun:
    """A command's printed JSON, its wall-clock seconds, and its peak memory in MB."""

    output: Any
    seconds: float
    peak_mb: float


# A program's peak memory is never below that of the process that started it, so this small process starts it.
_MEASURED = """\
import json, os, sys, time
start = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - start
os.write(int(sys.argv[1]), json.dumps([os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss]).encode())
"""


def run(command: Sequence[str]) -> CompletedRun:
    """Runs a command that prints JSON. If the command fails, raises `TellapartError` with its last line of output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as measured:
        process = _start(command, subprocess.DEVNULL, out, err, measured)
        try:
            process.wait()
        except BaseException:
            _kill(process)
            raise
        seconds, peak_mb = _measurement(process, command, err, measured)
        out.seek(0)
        return CompletedRun(json.loads(out.read()), seconds, peak_mb)


@contextmanager
def worker(command: Sequence[str]) -> Iterator[Worker]:
    """Starts a process that answers lines of JSON. Kills the process at the end if it is still running."""
    with (
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as measured,
        _start(command, subprocess.PIPE, subprocess.PIPE, err, measured) as process,
    ):
        try:
            yield Worker(command, process, err, measured)
        finally:
            if process.poll() is None:
                _kill(process)


@dataclass(frozen=True)
class Worker:
    """A process that answers each line of JSON on its standard input with a line on its standard output."""

    command: Sequence[str]
    process: subprocess.Popen[bytes]
    err: IO[bytes]
    measured: IO[bytes]

    def ask(self, question: Any) -> Any:
        """Returns the answer. If the process ends without one, raises `TellapartError` with its last line of output."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            self._ended()
            raise TellapartError(f"{' '.join(self.command)}: ended without an answer")
        return json.loads(answer)

    def finish(self) -> float:
        """Ends the process and returns its peak memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._ended()

    def _ended(self) -> float:
        self.process.wait()
        return _measurement(self.process, self.command, self.err, self.measured)[1]


def _start(command: Sequence[str], read: int, out: Any, err: IO[bytes], measured: IO[bytes]) -> subprocess.Popen[bytes]:
    # An installed package is compiled already: a process that compiles what it imports would measure that.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    number = measured.fileno()
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _MEASURED, str(number), *command],
        stdin=read,
        stdout=out,
        stderr=err,
        bufsize=0,  # nothing is left to write when a process has ended
        pass_fds=[number],
        start_new_session=True,
        env=environment,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _measurement(
    process: subprocess.Popen[bytes], command: Sequence[str], err: IO[bytes], measured: IO[bytes]
) -> tuple[float, float]:
    """Returns the seconds and the peak MB of a process that has ended. Raises `TellapartError` if it failed."""
    for file in (err, measured):
        file.seek(0)
    found = measured.read()
    status, seconds, peak = json.loads(found) if found else (process.returncode, 0.0, 0)
    if status:
        lines = err.read().decode(errors="replace").strip().split("\n")
        raise TellapartError(f"{' '.join(command)}: failed with status {status}: {lines[-1]}")
    # In kB on Linux, in bytes on macOS.
    return seconds, peak / (1e6 if sys.platform == "darwin" else 1e3)
