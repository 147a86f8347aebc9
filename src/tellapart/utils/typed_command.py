"""Reconstructs the command line of this process."""

from __future__ import annotations

import shlex
import sys


def typed_command() -> str:
    """Returns the command line of this process, quoted for a shell, to be recorded in pages and runs.

    A byte of a file name that is not valid UTF-8 is written as e.g. ``\\udcff``, because text files cannot store it.
    """
    line = shlex.join(["tellapart", *sys.argv[1:]])
    return line.encode("utf-8", "backslashreplace").decode()
