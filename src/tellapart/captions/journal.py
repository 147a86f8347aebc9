"""The journal of a folder's captions: the author, time and texts of each change in the log (`captions.log_file`).

If a process is killed after writing the log and before writing the captions, the rows still have their previous text
and count as unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.captions.authors import PERSON, UNKNOWN, Author
from tellapart.captions.log_file import LOG_NAME, append_lines, lock_log, open_log
from tellapart.captions.log_row import LogRow
from tellapart.captions.text_hash import text_hash
from tellapart.utils.strict_json import parse_json


class Journal:
    """The log of one folder: its rows and settings by file, and its changes in chronological order.

    only: the file to read the rows of. Default: all.
    """

    def __init__(self, path: Path, only: str | None = None) -> None:
        self.path = path
        self._begins = (b"",) if only is None else (json.dumps({"file": only})[:-1].encode() + b",", b'{"change"')
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[str, dict[str, LogRow]] = defaultdict(dict)
        self.settings: dict[str, dict[str, Any]] = {}
        self.changes: dict[str, JournalChange] = {}
        self.moved: dict[tuple[str, str], tuple[str, str]] = {}  # maps a row to the row that its text was in before
        self.authors: dict[tuple[str, str, str], Author] = {}  # by file, id and hash of the text
        self._writers: dict[str, Author] = {}  # the authors of texts that belong to no change, by file
        self._read: tuple[int, int] = (0, 0)  # inode, and the number of bytes read from it

    @classmethod
    def open(cls, folder: Path, only: str | None = None) -> Journal:
        """Reads the log of a folder. Ignores damaged lines.

        Raises `TellapartError` if it cannot be read, because texts that tellapart wrote would then count as a person's.
        """
        log = cls(folder / LOG_NAME, only)
        log.refresh()
        return log

    def refresh(self) -> None:
        """Reads new lines, or the whole file if it was replaced."""
        with open_log(self.path) as file:
            if file is None:
                self._clear()
            else:
                self._refresh(file)

    def _refresh(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        if self._read[0] != status.st_ino or status.st_size < self._read[1]:
            self._clear()
        end = file.seek(self._read[1])
        for line in file:
            if not line.endswith(b"\n"):
                break  # another process is still writing it, or was killed
            end += len(line)
            if line.startswith(self._begins):
                # A killed process may have left a partial line.
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    self.take(parse_json(line))
        self._read = status.st_ino, end

    def take(self, value: Mapping[str, Any]) -> None:
        """Updates the journal with a line of the log.

        Raises ValueError, KeyError, TypeError or AttributeError if the line is damaged.
        """
        if "what" in value:
            undoes = tuple(map(str, value.get("undoes") or ()))
            change = JournalChange(value["change"], str(value["what"]), Author.from_json(value.get("by") or {}), undoes)
            self.changes.setdefault(change.id, change)
            return
        file = str(value["file"])
        if "settings" in value:
            self.settings[file] = dict(value["settings"])
            self._writers[file] = Author.from_settings(value["settings"])
            self.rows[file] = {  # rows that a person marked are kept, so their texts do not look like a person's
                key: row if row.is_marked else LogRow(state=row.state)
                for key, row in self.rows[file].items()
                if row.state or row.is_marked
            }
            return
        key, of_change = str(value["id"]), self.changes.get(value.get("change", ""))
        author = of_change.author if of_change is not None else self._writers.get(file, UNKNOWN)
        if "by" in value:
            author = Author.from_json(value["by"])
        self.rows[file].setdefault(key, LogRow()).update(value)
        if "text" in value:
            self.authors[file, key, str(value["text"])] = author
        if value.get("from"):
            self.moved[file, key] = file, str(value["from"])
        if of_change is not None:
            row_change = of_change.rows.setdefault((file, key), RowChange())
            row_change.add(value, author if "text" in value else PERSON)

    def author(self, file: str, key: str, text: str) -> Author:
        """Returns the author of a text in this row."""
        row = self.rows[file].get(key)
        return self.authors.get((file, key, text_hash(text)), UNKNOWN) if row and row.wrote(text) else PERSON

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the log exclusively, and reads the lines that other processes have appended."""
        with lock_log(self.path) as file:
            self._refresh(file)
            self._file = file
            try:
                yield
            finally:
                if not os.fstat(file.fileno()).st_size:
                    self.path.unlink(missing_ok=True)  # nothing was written

    def append(
        self, values: Sequence[Mapping[str, Any]], change: JournalChange | None = None, *, sync: bool = True
    ) -> None:
        """Appends lines, after the head of a change that is new here. Must be called inside `locked`.

        sync: whether to wait until the lines are on disk, so that they survive a power failure.
        """
        heads = [change.head()] if change is not None and change.id not in self.changes else []
        append_lines(self._file, [json.dumps(value) + "\n" for value in (*heads, *values)], self.path, sync=sync)
        self._refresh(self._file)


@dataclass(slots=True)
class RowChange:
    """A change to one row.

    after: hash of the new text; None if the text was removed.
    text: whether the text changed.
    source: the text's previous row in this log if the text was moved to a renamed picture, or "" if that row is in
        another log; None if the text was not moved.
    """

    before: str | None = None
    after: str | None = None
    text: bool = False
    state: dict[str, Any] | None = None
    was: dict[str, Any] = field(default_factory=dict)
    author: Author = PERSON
    source: str | None = None

    def add(self, value: Mapping[str, Any], author: Author) -> None:
        """Merges another line of the same change, keeping the first text before it and the last text after it."""
        self.source = value.get("from", self.source)
        if "state" in value:
            self.was = dict(value.get("was") or {}) if self.state is None else self.was
            self.state = dict(value["state"])
        if {"text", "person", "removed"} & value.keys():
            self.before = self.before if self.text else value.get("before")
            self.after = None if value.get("removed") else str(value.get("text", value.get("person")))
            self.text, self.author = True, author


@dataclass
class JournalChange:
    """One change to any number of rows. ``id`` starts with the UTC time; ``undoes`` lists the changes it reverts."""

    id: str
    what: str
    author: Author
    undoes: tuple[str, ...] = ()
    rows: dict[tuple[str, str], RowChange] = field(default_factory=dict)

    @property
    def time(self) -> str:
        """Returns the time of the change in UTC, such as ``2026-11-28T00:30:00``."""
        return self.id[:19]

    def head(self) -> dict[str, Any]:
        """Returns the content of the line that introduces the change in the log."""
        by, undoes = self.author.to_json(), list(self.undoes)
        value = {"change": self.id, "what": self.what}
        return value | ({"by": by} if by else {}) | ({"undoes": undoes} if undoes else {})


def new_change(what: str, author: Author, undoes: Sequence[str] = ()) -> JournalChange:
    """Creates a change that starts now, for the texts that a command is about to write. Ids sort chronologically."""
    now = time.time_ns() // 1000
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6))
    return JournalChange(f"{seconds}.{now % 10**6:06d}Z-{os.urandom(2).hex()}", what, author, tuple(undoes))
