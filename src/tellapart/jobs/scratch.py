"""Provides a folder for a worker's temporary files, which is removed however the worker ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

# Waits until the worker's end of the pipe closes. `exec 3<&0` is needed because commands with "&" read /dev/null as
# stdin.
CLEAN = 'exec 3<&0; (cat <&3 >/dev/null; rm -rf -- "$1") >/dev/null 2>&1 &'


def scratch_folder() -> Path:
    """Creates a folder for this process's temporary files, which is removed however the process ends.

    Ray kills workers without letting them clean up, so a separate process waits for the worker to end.
    """
    folder = Path(tempfile.mkdtemp(prefix="tellapart-worker-"))
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        subprocess.run(["/bin/sh", "-c", CLEAN, "sh", str(folder)], stdin=pipe, check=True, start_new_session=True)
    _PIPES.append(writing)
    return folder


_PIPES: list[int] = []  # this process never closes the pipe, and child processes do not inherit it
