"""Determines who wrote each text in a caption file, according to the log (`captions.log_file`).

A text that is not in the log, or that has changed, counts as a person's. The log keeps the last few texts of each row
(`log_row.RECENT`), so a text that tellapart wrote never looks like a person's, even if the process is killed. A picture
is identified by the bytes that were decoded (`PictureRecord`), independently of its path and folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.journaled_run import JournaledRun
from tellapart.captions.log_file import LOG_NAME, append_lines, lock_log, open_log
from tellapart.captions.log_row import TextRow
from tellapart.captions.text_hash import text_hash
from tellapart.utils.strict_json import parse_json


class Provenance:
    """The entries of a folder's log for one caption file. ``settings``: the settings the file was created with; None if
    they are unknown.
    """

    def __init__(self, path: Path, file: str, settings: dict[str, Any] | None, rows: dict[str, TextRow]) -> None:
        self.path, self.file, self.settings, self.rows = path, file, settings, rows
        self._begun: list[str] = []  # the line from `begin`, which is written together with the first text
        self._headed: JournaledRun | None = None  # the change whose head line has been written

    @classmethod
    def open(cls, captions: Path) -> Provenance:
        """Reads the log's entries about a file of captions. Ignores damaged lines.

        Raises `TellapartError` if the log cannot be read, because texts that tellapart wrote would then count as a
        person's.
        """
        path, file = captions.parent / LOG_NAME, captions.name
        found, begins = cls(path, file, None, {}), json.dumps({"file": file})[:-1].encode() + b","
        with open_log(path) as lines:
            for line in lines or ():
                if line.startswith(begins):
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        found._take(parse_json(line))
        return found

    def _take(self, value: Mapping[str, Any]) -> None:
        if "settings" in value:
            self.settings, self.rows = dict(value["settings"]), {}
        else:
            self.rows[value["id"]] = self.rows.get(value["id"], TextRow()).with_line(value)

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Clears the rows, because the file is started over."""
        self._begun = [json.dumps({"file": self.file, "settings": settings}, sort_keys=False) + "\n"]
        self.settings, self.rows = json.loads(json.dumps(settings)), {}

    def record(
        self, rows: Mapping[str, TextRow], run: JournaledRun | None = None, before: Mapping[str, str] | None = None
    ) -> None:
        """Records texts that are about to be written.

        ``run``: the change that they belong to; ``before``: the texts that they replace.
        """
        values = [row.record(self.file, key) for key, row in rows.items()]
        if run is not None:
            for value in values:
                value["change"] = run.change
                value |= {"before": before[value["id"]]} if before and value["id"] in before else {}
        self._write(values, run)

    def record_removed(self, texts: Mapping[str, str], run: JournaledRun) -> None:
        """Records texts that are about to be removed."""
        self._write(
            [{"file": self.file, "id": key, "change": run.change, "removed": True, "before": text}
             for key, text in texts.items()],
            run,
        )  # fmt: skip

    def _write(self, values: Sequence[dict[str, Any]], run: JournaledRun | None) -> None:
        if not values:
            return
        head = [run.head] if run is not None and self._headed != run else []
        removed = [json.dumps(value) + "\n" for value in values if "removed" in value]
        rest = [json.dumps(value) + "\n" for value in values if "removed" not in value]
        with lock_log(self.path) as file:
            lines = [*head, *removed, *(self._begun if rest else ()), *rest]
            append_lines(file, lines, self.path, sync=False)
        self._begun, self._headed = [] if rest else self._begun, run or self._headed
        for value in values:
            self._take(value)

    def wrote(self, key: str, text: str) -> bool:
        """Returns whether tellapart wrote this text."""
        return key in self.rows and text_hash(text) in self.rows[key].hashes


def log_of(out: Path) -> Path:
    """Returns the name under which the log stores the captions that the texts in ``out`` are made from."""
    return out.with_name(f"{out.name}#captions")
