"""The log of a folder's captions: a hidden file of JSON lines that says who wrote each text, and when.

Each line describes one row. ``file`` is the file that contains the row, and ``id`` is the row's id in that file. If
each row has its own file, ``file`` is a pattern such as ``*.txt`` or ``*.xmp``, and ``id`` is the file's name. Texts
are identified by their hashes. A change to many texts starts with a head line, to which the lines of its rows refer
with ``change``:

    {"file": "captions.jsonl", "settings": {"decoding": …}}                        these captions were started over
    {"file": "captions.jsonl", "id": "1.jpg", "text": HASH, "picture": […]}        a caption, and its picture
    {"change": "2026-11-28T00:30:00.123456Z-1f2e", "what": "edit", "by": {"model": …}}    no "by": a person
    {"file": "*.txt", "id": "1.txt", "change": …, "person": HASH, "before": TEXT}         "text": HASH if ours
    {"file": "*.txt", "id": "1.txt", "change": …, "removed": true, "before": TEXT}
    {"file": "*.txt", "id": "1.txt", "change": …, "state": {"accepted": true}, "was": {}}

A missing "before" means that there was no text. Lines are written before the texts that they describe. Several
processes may append to the log, under a lock. `captions.journal` reads it, and `captions.provenance` is a view of the
rows of one caption file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tellapart.errors import TellapartError

LOG_NAME = ".tellapart-captions.jsonl"


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[BinaryIO | None]:
    """Opens a log for reading. Yields None if the log does not exist.

    Raises `TellapartError` if the log cannot be read, because tellapart's own texts would then count as a person's.
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
def lock_log(path: Path) -> Iterator[BinaryIO]:
    """Opens a log for reading and appending, and locks it exclusively. Creates the log if it does not exist."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return
            # The log was replaced after it was opened and before it was locked, so appended lines would be lost.


def append_lines(file: BinaryIO, lines: Sequence[str], path: Path, *, sync: bool) -> None:
    """Appends complete lines to a locked log, even if a killed process left a partial line.

    sync: whether to wait until the lines are on disk, so that they survive a power failure.
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
