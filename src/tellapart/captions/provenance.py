"""Determines who wrote each text in a caption file, according to the log (`captions.log_file`).

A text that is not in the log, or that has changed, counts as a person's. The log keeps the last few texts of each row
(`log_row.RECENT`), so a text that tellapart wrote never looks like a person's, even if the process is killed. A picture
is identified by the bytes that were decoded (`PictureRecord`), independently of its path and folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tellapart.captions.formats import CaptionLine
from tellapart.captions.journal import Journal, JournalChange
from tellapart.captions.log_row import LogRow, state_of_new_text
from tellapart.captions.marks import is_marked
from tellapart.captions.text_hash import text_hash


class Provenance:
    """The entries of a folder's log for one caption file."""

    def __init__(self, captions: Path, journal: Journal) -> None:
        self.captions, self._journal = captions, journal
        self._begun: list[dict[str, Any]] = []  # the line from `begin`, which is written together with the first text

    @classmethod
    def open(cls, captions: Path) -> Provenance:
        """Reads the log's entries about a file of captions. Raises the same errors as `Journal.open`."""
        return cls(captions, Journal.open(captions.parent, captions.name))

    @property
    def rows(self) -> dict[str, LogRow]:
        """Returns the rows by id."""
        return self._journal.rows[self.captions.name]

    @property
    def settings(self) -> dict[str, Any] | None:
        """Returns the settings that the file was created with; None if they are unknown."""
        return self._journal.settings.get(self.captions.name)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Clears the rows, because the file is started over."""
        self._begun = [{"file": self.captions.name, "settings": json.loads(json.dumps(settings))}]
        self._journal.take(self._begun[0])

    def record(
        self,
        rows: Mapping[str, Mapping[str, Any]],
        change: JournalChange | None = None,
        before: Mapping[str, str] | None = None,
    ) -> None:
        """Records texts that are about to be written.

        rows: the result of `log_row.text_fields` for each id.
        change: the change that they belong to.
        before: the texts that they replace.

        The texts of a change do not inherit marks of the texts that they replace, such as ``accepted``.
        """
        if not rows:
            return
        own = {} if change is None else {"change": change.id}
        with self._journal.locked():  # reads marks that the review page has recorded since
            values = [
                {"file": self.captions.name, "id": key, **fields, **own}
                | (self._state_fields(key, (before or {}).get(key), fields.get("text")) if change is not None else {})
                | ({"before": before[key]} if change is not None and before and key in before else {})
                for key, fields in rows.items()
            ]
            self._journal.append([*self._begun, *values], change, sync=False)
        self._begun = []

    def record_removed(self, texts: Mapping[str, str], change: JournalChange) -> None:
        """Records texts that are about to be removed."""
        if not texts:
            return
        row = {"file": self.captions.name, "change": change.id, "removed": True}
        with self._journal.locked():
            values = [
                row | {"id": key, "before": text} | self._state_fields(key, text, None) for key, text in texts.items()
            ]
            self._journal.append(values, change, sync=False)

    def record_marks(self, lines: Iterable[CaptionLine]) -> None:
        """Records the marks that lines of the caption file have, if the log does not have them yet.

        A mark that is only in a line would otherwise be lost with the line, and ``undo`` could not restore it.
        """
        rows = {line: self.rows.get(line.id, LogRow()) for line in lines if line.marks}
        states = {line: row.state_of(line.text) | dict.fromkeys(line.marks, True) for line, row in rows.items()}
        values = [
            {"file": self.captions.name, "id": line.id, "state": state}
            for line, state in states.items()
            if state != rows[line].state
        ]
        if values:
            with self._journal.locked():
                self._journal.append(values, sync=False)

    def _state_fields(self, key: str, before: str | None, new: str | None) -> dict[str, Any]:
        """Returns the fields of a log line that change a row's state to that of a new text. ``new``: its hash."""
        row = self.rows.get(key, LogRow())
        was = row.state_of(before)
        state = was if before is not None and text_hash(before) == new else state_of_new_text(was)
        return {"state": state, "was": was} if state != was or state != row.state else {}

    def wrote(self, key: str, text: str) -> bool:
        """Returns whether tellapart wrote this text."""
        return key in self.rows and self.rows[key].wrote(text)

    def is_persons(self, key: str, text: str, *, accepted: bool) -> bool:
        """Returns whether a person wrote this text.

        accepted: whether texts of tellapart that a person accepted, or marked as decorative, count as well. They do if
            tellapart's texts are to be replaced.
        """
        return not self.wrote(key, text) or (accepted and is_marked(self.rows[key].state_of(text)))

    def is_decorative(self, key: str) -> bool:
        """Returns whether a person marked this picture as needing no text."""
        row = self.rows.get(key)
        return row is not None and bool(row.state.get("decorative"))

    def refresh(self) -> None:
        """Reads what other processes have recorded since."""
        self._journal.refresh()


def log_of(out: Path) -> Path:
    """Returns the name under which the log stores the captions that the texts in ``out`` are made from."""
    return out.with_name(f"{out.name}#captions")
