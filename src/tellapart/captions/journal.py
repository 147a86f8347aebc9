"""The journal of a folder's captions: the author, time and texts of each change in the log (`captions.log_file`).

If a process is killed after writing the log and before writing the captions, the rows still have their previous text
and count as unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.captions.authors import PERSON, UNKNOWN, Author
from tellapart.captions.log_file import LOG_NAME, append_lines, lock_log, open_log
from tellapart.captions.log_row import TextRow
from tellapart.captions.text_hash import text_hash
from tellapart.utils.atomic_writes import replace_file
from tellapart.utils.strict_json import parse_json

COMPACT_BYTES = 1 << 20  # smaller logs are not compacted


@dataclass
class LoggedRow:
    """One row of the log: the texts that tellapart wrote, their authors by text hash, and the row's state."""

    row: TextRow = field(default_factory=TextRow)
    authors: dict[str, Author] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)

    def author(self, text: str) -> Author:
        """Returns the author of one of this row's texts."""
        hash_ = text_hash(text)
        return self.authors.get(hash_, UNKNOWN) if hash_ in self.row.hashes else PERSON


class Journal:
    """The log of one folder, with its rows by (file, id) and its changes in chronological order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[tuple[str, str], LoggedRow] = {}
        self.changes: dict[str, JournalChange] = {}
        self.moved: dict[tuple[str, str], tuple[str, str]] = {}  # maps a row to the row that its text was in before
        self._settings: dict[str, Author] = {}
        self._read: tuple[int, int] = (0, 0)  # inode, and the number of bytes read from it
        self._lines = self._tried = 0  # number of lines now, and when compacting was last tried

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Reads the log of a folder. Raises `TellapartError` if it cannot be read."""
        log = cls(folder / LOG_NAME)
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
        file.seek(self._read[1])
        data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            with contextlib.suppress(
                ValueError, KeyError, TypeError, AttributeError
            ):  # partial line left by a killed process
                self._take(parse_json(line))
        self._read = status.st_ino, self._read[1] + len(whole)

    def _take(self, value: Mapping[str, Any]) -> None:
        self._lines += 1
        if "what" in value:
            author = Author.from_json(value.get("by") or {})
            undoes = tuple(map(str, value.get("undoes") or ()))
            self.changes.setdefault(value["change"], JournalChange(value["change"], str(value["what"]), author, undoes))
            return
        file = str(value["file"])
        if "settings" in value:
            self._settings[file] = Author.from_settings(value["settings"])
            for key in [key for key in self.rows if key[0] == file]:
                self.rows[key].row = TextRow()
            return
        key = file, str(value["id"])
        change = self.changes.get(value.get("change", ""))
        logged = self.rows.setdefault(key, LoggedRow())
        logged.row = logged.row.with_line(value)
        author = change.author if change is not None else self._settings.get(file, UNKNOWN)
        if "by" in value:
            author = Author.from_json(value["by"])
        if "text" in value:
            logged.authors[str(value["text"])] = author
        if "state" in value:
            logged.state = dict(value["state"])
        if value.get("from"):
            self.moved[key] = file, str(value["from"])
        if change is not None:
            change.rows.setdefault(key, RowChange()).add(value, author if "text" in value else PERSON)

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

    def append(self, lines: Sequence[str]) -> None:
        """Appends complete lines, and flushes them to disk. Must be called inside `locked`."""
        append_lines(self._file, lines, self.path, sync=True)
        self._refresh(self._file)

    def compact(self) -> None:
        """Removes superseded lines if they are the majority. Must be called inside `locked`.

        Keeps all texts and changes, but only the last record of each picture and of the captions used for its text.
        """
        if self._read[1] < COMPACT_BYTES or self._lines < 2 * max(len(self.rows), self._tried):
            return
        self._tried = self._lines
        data = self.path.read_bytes()
        lines = _compacted(data)
        if sum(map(len, lines)) < len(data) // 2:
            replace_file(self.path, lambda new: new.write_bytes(b"".join(lines)))


def _compacted(data: bytes) -> list[bytes]:
    """Returns the lines to keep, in order. Before a file's last "settings" line, only changes are kept."""
    lines: list[bytes] = []
    later: dict[tuple[str, str], set[str]] = {}  # fields of later lines, by row
    begun = set[str]()  # files that a later line starts over
    for line in reversed(data.splitlines(keepends=True)):
        with contextlib.suppress(ValueError, AttributeError):
            value = parse_json(line)
            key = str(value.get("file")), str(value.get("id"))
            if "change" not in value and key[0] in begun:
                continue
            begun |= {key[0]} if "settings" in value else set()
            replaced = {"picture", "captions"} & value.keys() & later.get(key, set())
            later.setdefault(key, set()).update({"picture", "captions"} & value.keys())
            value = {name: each for name, each in value.items() if name not in replaced}
            if value.keys() - {"file", "id"}:
                lines.append(json.dumps(value).encode() + b"\n" if replaced else line)
    return lines[::-1]


@dataclass
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
