"""Finds the hand-written, edited and accepted texts in an output file, so that they are kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.captions.backups import back_up
from tellapart.captions.log_row import LogRow
from tellapart.captions.marks import mark_of
from tellapart.captions.picture_matching import renamed_ids
from tellapart.captions.provenance import Provenance, log_of
from tellapart.captions.replacement import Replace
from tellapart.data.csv_text import separator_of
from tellapart.data.text_files import decode_text
from tellapart.errors import UsageError
from tellapart.purposes.edited import Edited
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json


def rows_in(out: Path) -> list[dict[str, Any]]:
    """Returns the rows of a file of texts. Raises ValueError or csv.Error if it is damaged."""
    text = decode_text(out.read_bytes())
    if out.suffix.lower() != ".csv":
        return [parse_json(line) for line in text.split("\n") if line.strip()]
    separator = separator_of(text.partition("\n")[0], out)  # spreadsheets may change it
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))


def people_rows(out: Path, items: Sequence[Item]) -> dict[str, Edited]:
    """Returns the texts in ``out`` that a person wrote, changed or accepted, by item id.

    An empty text or ``"decorative": true`` marks a picture that needs no text, such as an ornament. Marks made on the
    review page are read from the log, because most tables lack columns for them. Raises `UsageError` if no earlier run
    wrote the file, or if a line cannot be parsed.
    """
    known, found = Provenance.open(out), dict[str, Edited]()
    rows = dict(known.rows)
    if not out.exists():
        return found
    if not known.rows:
        raise UsageError(
            f"{out} was not written by this command; move it elsewhere, or pass --replace-edited (a backup is kept)"
        )
    renamed = renamed_ids(items, Provenance.open(log_of(out)).rows)
    try:
        for row in rows_in(out):
            key, said = str(row["id"]), " ".join(str(row["caption"] or "").split())
            state = rows.pop(key, LogRow()).state_of(said)
            accepted, decorative = (state.get(name) or _mark(row, name) for name in ("accepted", "decorative"))
            if accepted or decorative or not known.wrote(key, said):
                said, long = ("", "") if decorative else (said, " ".join(str(row.get("long") or "").split()))
                language = str(row.get("language") or "")
                found[renamed.get(key, key)] = Edited(said, (), long, bool(accepted) or not said, language)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(
            f"{out} has a line that this command cannot parse ({error}); fix the line, or pass "
            "--replace-edited (a backup is kept)"
        ) from None
    bare = {renamed.get(key, key) for key, row in rows.items() if row.state.get("decorative")}
    return found | {item.id: Edited("", accepted=True) for item in items if item.id in bare}


def _mark(row: Mapping[str, Any], name: str) -> bool:
    """Returns whether a row has a mark. Raises ValueError for an unknown word, because the mark must not be lost."""
    try:
        return mark_of(row.get(name))
    except ValueError as error:
        raise ValueError(f"{name} of '{row['id']}' is {error}") from None


def with_edits(
    out: Path, edited: Mapping[str, Edited], replaces: Replace, items: Sequence[Item]
) -> tuple[dict[str, Edited], set[str]]:
    """Returns the texts with a person's changes in ``out`` applied, and the ids of the changed texts.

    With ``replaces.edited``, discards these changes after backing up the whole file.
    """
    if replaces.edited:
        if out.exists():
            backup = back_up(out, {"": out.read_bytes().decode("utf-8", "surrogateescape")})
            say(f"replaced {out}; the backup is {backup}")
        return dict(edited), set()
    people = people_rows(out, items)
    changed = {key for key, one in people.items() if one.accepted or key not in edited or one.text != edited[key].text}
    return {**edited, **{key: people[key] for key in changed}}, changed
