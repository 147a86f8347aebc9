"""The folder of a worker's temporary files, removed however the worker ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

# Reads until the worker's end of the pipe closes. A list with "&" reads /dev/null instead of its own standard input.
CLEAN = 'exec 3<&0; (cat <&3 >/dev/null; rm -rf -- "$1") >/dev/null 2>&1 &'


def scratch_folder() -> Path:
    """Returns a new folder for this process's temporary files, which is removed however the process ends.

    Ray kills workers without a chance to clean up, so a process of its own waits for the worker's end.
    """
    folder = Path(tempfile.mkdtemp(prefix="tellapart-worker-"))
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        subprocess.run(["/bin/sh", "-c", CLEAN, "sh", str(folder)], stdin=pipe, check=True, start_new_session=True)
    _PIPES.append(writing)
    return folder


_PIPES: list[int] = []  # never closed by this process, and not inherited by those that it starts
