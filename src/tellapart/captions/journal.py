"""Journal of a folder's captions, in the log of `provenance`: records the author, time and previous text of each
change.

A change consists of a head line and one line per row. These are on disk before any caption is written:

    {"change": "2026-11-28T00:30:00.123456Z-1f2e", "what": "edit", "by": {"model": …}}    no "by": a person
    {"file": "*.txt", "id": "1.txt", "change": …, "person": HASH, "before": TEXT}         "text": HASH if ours
    {"file": "*.txt", "id": "1.txt", "change": …, "removed": true, "before": TEXT}
    {"file": "*.txt", "id": "1.txt", "change": …, "state": {"accepted": true}, "was": {}}

A missing "before" means that there was no text. If a process is killed after writing the journal and before writing the
captions, the rows still have their previous text and count as unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.captions import log_file
from tellapart.captions.authors import PERSON, UNKNOWN, Author
from tellapart.captions.changes import JournalChange, RowChange
from tellapart.captions.log_rows import TextRow
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
        """Returns the author of a text of this row."""
        hash_ = text_hash(text)
        return self.authors.get(hash_, UNKNOWN) if hash_ in self.row.hashes else PERSON


class Log:
    """The log of one folder, with its rows by (file, id) and its changes in chronological order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[tuple[str, str], LoggedRow] = {}
        self.changes: dict[str, JournalChange] = {}
        self.moved: dict[tuple[str, str], tuple[str, str]] = {}  # maps a row to the row that its text had before
        self._settings: dict[str, Author] = {}
        self._read: tuple[int, int] = (0, 0)  # inode, and the number of bytes read from it
        self._lines = self._tried = 0  # number of lines now, and when compacting was last tried

    @classmethod
    def open(cls, folder: Path) -> Log:
        """Reads the log of a folder. Raises `TellapartError` if it cannot be read."""
        log = cls(folder / log_file.FILE_NAME)
        log.refresh()
        return log

    def refresh(self) -> None:
        """Reads new lines, or the whole file if it was replaced."""
        with log_file.opened(self.path) as file:
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
        with log_file.locked(self.path) as file:
            self._refresh(file)
            self._file = file
            try:
                yield
            finally:
                if not os.fstat(file.fileno()).st_size:
                    self.path.unlink(missing_ok=True)  # nothing was written

    def append(self, lines: Sequence[str]) -> None:
        """Appends complete lines, and flushes them to disk; call it only inside `locked`."""
        log_file.append_lines(self._file, lines, self.path, sync=True)
        self._refresh(self._file)

    def compact(self) -> None:
        """Removes lines that later lines supersede, if they are the majority; call it only inside `locked`.

        Keeps all texts and changes, but only the last record of each picture and of its captioner's captions.
        """
        if self._read[1] < COMPACT_BYTES or self._lines < 2 * max(len(self.rows), self._tried):
            return
        self._tried = self._lines
        data = self.path.read_bytes()
        lines = _compacted(data)
        if sum(map(len, lines)) < len(data) // 2:
            replace_file(self.path, lambda new: new.write_bytes(b"".join(lines)))


def _compacted(data: bytes) -> list[bytes]:
    """Returns the lines to keep, in order. Of the lines before a file's last "settings" line, only changes are kept."""
    lines: list[bytes] = []
    later: dict[tuple[str, str], set[str]] = {}  # fields of later lines, by row
    begun = set[str]()  # files that a later line restarts
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
