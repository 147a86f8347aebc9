"""The log of a folder's captions, a hidden file of JSON lines: reading, and appending under a lock.

Processes that write captions append to it concurrently, and `captions.journal` replaces it with a shorter one.
`captions.provenance` and `captions.journal` define the line format.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tellapart.errors import TellapartError

FILE_NAME = ".tellapart-captions.jsonl"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO | None]:
    """Opens a log for reading; None if it does not exist.

    Raises `TellapartError` if it cannot be read, because our own texts would then count as a person's.
    """
    try:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            file = None
        with file or contextlib.nullcontext():
            yield file
    except OSError as error:
        raise TellapartError(
            f"{path} cannot be read ({error.strerror}), but is needed because it records who wrote each text; make it "
            "readable"
        ) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Opens a log for reading and appending, and locks it exclusively; creates it if it does not exist."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return
            # otherwise it was replaced between our opening and locking, and what we append would be lost


def append_lines(file: BinaryIO, lines: Sequence[str], path: Path, *, sync: bool) -> None:
    """Appends complete lines to a locked log, even after a partial line of a killed process.

    ``sync``: returns when they are on disk, so that they survive a power failure.
    """
    size = file.seek(0, os.SEEK_END)
    whole = not size or os.pread(file.fileno(), 1, size - 1) == b"\n"
    try:
        file.write(("" if whole else "\n").encode() + "".join(lines).encode("utf-8", "surrogatepass"))
        file.flush()
        if sync:
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            file.truncate(size)
        error.filename = str(path)
        raise
