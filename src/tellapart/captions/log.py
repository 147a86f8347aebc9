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
processes may append to the log, under a lock. `captions.provenance` reads the rows of one caption file, and
`captions.journal` reads the changes to a whole folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.captions.authors import Author
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.text_hash import text_hash
from tellapart.errors import TellapartError

RECENT = 4  # texts stored per row, because a killed process may have recorded texts that it did not write
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


@dataclass(frozen=True)
class TextRow:
    """One row in the log.

    hashes: hashes of the last texts that tellapart wrote.
    captions: the captioner's captions that the text was made from, if there are any.
    removed: whether tellapart removed the text, as ``undo`` does.
    """

    hashes: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    captions: tuple[str, ...] = ()
    removed: bool = False

    @classmethod
    def new(cls, text: str | None, picture: PictureRecord | None = None, captions: Sequence[str] = ()) -> TextRow:
        """Creates the row for a text that is about to be written."""
        return cls(() if text is None else (text_hash(text),), picture, tuple(captions))

    def record(self, file: str, key: str) -> dict[str, Any]:
        """Returns the row as the content of a log line."""
        value: dict[str, Any] = {"file": file, "id": key}
        if self.hashes:
            value["text"] = self.hashes[-1]
        if self.picture is not None:
            value["picture"] = [self.picture.size, self.picture.time_ns, self.picture.content, self.picture.place]
        if self.captions:
            value["captions"] = self.captions
        return value

    def line(self, file: str, key: str) -> str:
        """Returns the line to write to the log."""
        return json.dumps(self.record(file, key)) + "\n"

    def with_line(self, value: Mapping[str, Any]) -> TextRow:
        """Returns the row, updated with another line of the log."""
        hashes = dict.fromkeys([*self.hashes, *([str(value["text"])] if "text" in value else [])])
        if "text" in value and (before := text_hash(str(value.get("before")))) in self.hashes:
            # Drops texts that killed processes recorded but did not write.
            hashes = dict.fromkeys([before, str(value["text"])])
        picture = PictureRecord(*value["picture"]) if "picture" in value else self.picture
        captions = tuple(map(str, value["captions"])) if "captions" in value else self.captions
        removed = "removed" in value or (self.removed and "text" not in value)
        return TextRow(tuple(hashes)[-RECENT:], picture, captions, removed)


@dataclass(frozen=True)
class JournaledRun:
    """The change that a command makes to many texts, as the journal records it: its id and its head line."""

    change: str
    head: str


def new_change_id() -> str:
    """Creates an id for a change that starts now. Ids sort chronologically."""
    now = time.time_ns() // 1000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6))
    return f"{seconds}.{now % 10**6:06d}Z-{os.urandom(2).hex()}"


def head_line(change: str, what: str, author: Author, undoes: Sequence[str] = ()) -> str:
    """Returns the line with which the journal introduces a change."""
    value: dict[str, Any] = {"change": change, "what": what}
    value |= {"by": author.to_json()} if not author.is_person else {}
    return json.dumps(value | ({"undoes": list(undoes)} if undoes else {})) + "\n"


def new_run(what: str, author: Author, undoes: Sequence[str] = ()) -> JournaledRun:
    """Creates a change for the texts that a command is about to write."""
    change = new_change_id()
    return JournaledRun(change, head_line(change, what, author, undoes))


def log_of(out: Path) -> Path:
    """Returns the name under which the log stores the captions that the texts in ``out`` are made from."""
    return out.with_name(f"{out.name}#captions")
