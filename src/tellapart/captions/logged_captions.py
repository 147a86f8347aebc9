"""Captions that are stored only in the log, to be turned into alt text or training captions later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.earlier_run import refuse_other_settings
from tellapart.captions.log_row import text_fields
from tellapart.captions.picture_matching import match_pictures, renamed_ids
from tellapart.captions.provenance import Provenance, log_of
from tellapart.captions.replacement import Replace
from tellapart.captions.written import Written
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.write_errors import output_errors


class LogWriter:
    """Writes captions only to the log, to be turned into alt text or training captions later."""

    def __init__(self, out: Path, known: Provenance, done: set[str]) -> None:
        self.out, self._known, self.done = out, known, done

    @classmethod
    def open(cls, out: Path, settings: dict[str, Any], items: Sequence[Item], replaces: Replace) -> LogWriter:
        """Starts new captions, or continues a run. Raises `UsageError` if the run has different settings."""
        known = Provenance.open(log_of(out))
        if known.settings is None or replaces.own:
            with output_errors(out):
                known.begin(settings)
            return cls(out, known, set())
        refuse_other_settings(out, known, settings)
        present = {key for key, row in known.rows.items() if row.captions}
        done, replaced = match_pictures(items, known.rows, present, out)
        if replaced:
            say(f"{out}: {len(replaced):,} pictures have since been replaced and are captioned again")
        return cls(out, known, done)

    def write(self, captions: Sequence[Written]) -> None:
        with output_errors(self.out):
            self._known.record({one.item.id: text_fields(None, one.picture, one.texts) for one in captions})
        self.done.update(one.item.id for one in captions)

    def close(self) -> None:
        """Does nothing."""


def logged_captions(out: Path, items: Sequence[Item]) -> dict[str, list[str]]:
    """Returns the captions that a `LogWriter` wrote for these items, by id."""
    rows = {key: row for key, row in Provenance.open(log_of(out)).rows.items() if row.captions}
    ids = {new: old for old, new in renamed_ids(items, rows).items()}
    keys = {item.id: ids.get(item.id, item.id) for item in items}
    return {id_: list(rows[key].captions) for id_, key in keys.items() if key in rows}
