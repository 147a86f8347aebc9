"""Texts in one file, one per line (JSON lines, CSV), or together with the pictures (`tellapart.purposes.packed`)."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tellapart.captions.backups import back_up
from tellapart.captions.formats import name_in
from tellapart.captions.journal import Journal
from tellapart.captions.layouts import ListFile
from tellapart.captions.log import JournaledRun, TextRow, log_of
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.picture_matching import renamed_ids
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import Replace
from tellapart.captions.texts_beside import text_of_person
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.text_files import decode_text
from tellapart.errors import UsageError
from tellapart.purposes.packed import PACKED
from tellapart.purposes.texts import Edited
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import json_text, parse_json
from tellapart.utils.write_errors import output_errors

STATE = ("language", "accepted", "decorative")  # optional columns in a table


def refuse_other_language(out: Path, language: str) -> None:
    """Raises `UsageError` if the texts in ``out`` are in a language other than ``language``."""
    if not language or not out.is_file():
        return
    text = decode_text(out.read_bytes())
    try:
        lines = text.split("\n")
        rows = csv.DictReader(lines) if out.suffix.lower() == ".csv" else map(parse_json, filter(str.strip, lines))
        known = {str(row.get("language") or "") for row in rows}
    except (ValueError, AttributeError, csv.Error):
        return  # the code that reads the rows reports the error
    if other := sorted(known - {language}):
        said = f"are marked as '{other[0]}'" if other[0] else "have no language tag"
        raise UsageError(
            f"--language {language}: the texts in {out} {said}; use one file per language, such "
            f"as -o {out.stem}.{language}{out.suffix}"
        )


def refuse_foreign(out: Path, own: OwnFiles, replaces: Replace) -> None:
    """Raises `UsageError` if a person wrote the file ``out``; files with pictures are checked by `check_output`."""
    if out.suffix.lower() in PACKED:
        check_output(out)
    elif text_of_person(out, own) is not None and not replaces.edited:
        raise UsageError(
            f"{out} was not written by this command, or has changed since; move it elsewhere, or "
            "pass --replace-edited (a backup is kept)"
        )


def people_rows(out: Path, items: Sequence[Item]) -> dict[str, Edited]:
    """Returns the texts in ``out`` that a person wrote, changed or accepted, by the ids of the items.

    An empty text or ``"decorative": true`` marks a picture that needs no text, such as an ornament. Marks made on the
    review page are read from the log, because a table cannot store them. Raises `UsageError` if no earlier run wrote
    the file, or if a line cannot be parsed.
    """
    known, found = Provenance.open(out), dict[str, Edited]()
    states = {key: logged.state for (file, key), logged in Journal.open(out.parent).rows.items() if file == out.name}
    if not out.exists():
        return found
    if not known.rows:
        raise UsageError(
            f"{out} was not written by this command; move it elsewhere, or pass --replace-edited (a backup is kept)"
        )
    renamed = renamed_ids(items, Provenance.open(log_of(out)).rows)
    try:
        text = decode_text(out.read_bytes())
        if out.suffix.lower() == ".csv":
            separator = max(",;\t", key=text.partition("\n")[0].count)  # a spreadsheet may have saved it with another
            rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
        else:
            rows = [parse_json(line) for line in text.split("\n") if line.strip()]
        for row in rows:
            key, said = str(row["id"]), " ".join(str(row["caption"] or "").split())
            state = {**states.pop(key, {}), **{name: value for name, value in row.items() if value}}
            accepted, decorative = (state.get(name) in (True, "True") for name in ("accepted", "decorative"))
            if accepted or decorative or not known.wrote(key, said):
                said, long = ("", "") if decorative else (said, " ".join(str(row.get("long") or "").split()))
                language = str(row.get("language") or "")
                found[renamed.get(key, key)] = Edited(said, (), long, accepted or not said, language)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(
            f"{out} has a line that this command cannot parse ({error}); fix the line, or pass "
            "--replace-edited (a backup is kept)"
        ) from None
    bare = {renamed.get(key, key) for key, state in states.items() if state.get("decorative")}
    return found | {item.id: Edited("", accepted=True) for item in items if item.id in bare}


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


def write_lines(
    out: Path,
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    own: OwnFiles,
    run: JournaledRun,
    changed: Set[str] = frozenset(),
) -> int:
    """Writes the texts into one file, in the order of the items; returns the number of texts.

    The suffix selects the format: ``.jsonl``, ``.csv``, ``.parquet`` (with pictures, in Hugging Face's layout) or
    ``.tar`` (WebDataset).

    Files that are named like Hugging Face's metadata files have the fields ``file_name`` and ``text``. Pictures without
    a text have no line. ``run``: the change in the journal; ``changed``: ids of texts that a person changed.
    """
    rows = _with_text(items, edited)
    if (packed := PACKED.get(out.suffix.lower())) is not None:
        write_output(out, lambda path: packed(path, rows))
        return len(rows)
    text = (
        _table(out, rows)
        if out.suffix.lower() == ".csv"
        else "".join(json.dumps(text_record(out, item, one), ensure_ascii=False) + "\n" for item, one in rows)
    )
    with output_errors(out):
        if out.name in METADATA_FILES and (before := text_of_person(out, own)) not in (None, text):
            for backup in own.back_up({out: str(before)}):
                say(f"replaced {out}; the backup is {backup}")
        own.record({out: text})
        record_list(out, items, {item.id: one.text for item, one in rows}, changed, run)
        replace_text(out, text)
    return len(rows)


def _with_text(items: Sequence[Item], edited: Mapping[str, Edited]) -> list[tuple[Item, Edited]]:
    """Returns the items that get a line: those with a text, and those whose empty text a person accepted."""
    found = ((item, edited.get(item.id, Edited(""))) for item in items)
    return [(item, one) for item, one in found if one.text or one.accepted]


def json_lines(items: Sequence[Item], edited: Mapping[str, Edited]) -> str:
    """Returns the texts as JSON lines."""
    return "".join(json_text(text_record(Path(), item, one)) + "\n" for item, one in _with_text(items, edited))


def text_record(out: Path, item: Item, one: Edited) -> dict[str, Any]:
    """Returns the record for a picture's text in the file ``out``."""
    texts = one.text.split("\n")
    if out.name in METADATA_FILES:  # diffusers picks one of several texts at random
        return {"file_name": name_in(item, out.parent), "text": texts[0] if len(texts) == 1 else texts}
    said: dict[str, Any] = {"caption": texts[0]} if len(texts) == 1 else {"captions": texts}
    state = {"decorative": True} if one.decorative else {"accepted": True} if one.accepted else {}
    more = {"long": one.long, "language": one.language, "variation": {} if one.decorative else one.variation}
    return {"id": item.id, **said, **{name: value for name, value in more.items() if value}, **state}


def _table(out: Path, rows: Iterable[tuple[Item, Edited]]) -> str:
    text, names = io.StringIO(), ("file_name", "text") if out.name in METADATA_FILES else ("id", "caption", "long")
    records = [text_record(out, item, one) for item, one in rows]
    if out.name not in METADATA_FILES:
        names = (*names, *(name for name in STATE if any(name in record for record in records)))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *([record.get(name, "") for name in names] for record in records)])
    return text.getvalue()


def record_list(
    out: Path, items: Sequence[Item], texts: Mapping[str, str], people: Set[str], run: JournaledRun
) -> None:
    """Records a list of captions in the journal before it is rewritten: its new rows, and the rows that are removed.

    ``texts``: the new texts by id; ``people``: ids of texts that a person wrote and that are kept.
    """
    before: dict[str, str] = {}
    if out.exists():
        with contextlib.suppress(UsageError):  # damaged, so it was backed up as a whole
            before = ListFile(out, items).read([item.id for item in items])
    known = Provenance.open(out)
    known.record_removed({key: text for key, text in before.items() if key not in texts}, run)
    rows = {key: TextRow.new(text) for key, text in texts.items() if key not in people}
    same = {key: row for key, row in rows.items() if before.get(key) == texts[key]}
    known.record({key: row for key, row in rows.items() if key not in same}, run, before)
    known.record({key: row for key, row in same.items() if not known.wrote(key, texts[key])})
