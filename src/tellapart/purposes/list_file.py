"""Writes texts into one file, as JSON lines or CSV, or together with the pictures (`purposes.packed`)."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tellapart.captions.formats import name_in
from tellapart.captions.journal import JournalChange
from tellapart.captions.list_layout import TABLE_STATE, ListFile
from tellapart.captions.log_row import text_fields
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.own_texts import text_of_person
from tellapart.captions.provenance import Provenance
from tellapart.data.caption_files import METADATA_FILES
from tellapart.errors import UsageError
from tellapart.purposes.edited import Edited
from tellapart.purposes.packed import PACKED
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.outputs import write_output
from tellapart.utils.strict_json import json_text
from tellapart.utils.write_errors import output_errors


def write_lines(
    out: Path,
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    own: OwnFiles,
    change: JournalChange,
    changed: Set[str] = frozenset(),
) -> int:
    """Writes the texts to one file, in the order of the items. Returns the number of texts.

    The suffix selects the format: ``.jsonl``, ``.csv``, ``.parquet`` (with pictures, in Hugging Face's layout) or
    ``.tar`` (WebDataset).

    Files that are named like Hugging Face's metadata files have the fields ``file_name`` and ``text``. Pictures without
    a text have no line. ``change``: the change in the journal; ``changed``: ids of texts that a person changed.
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
        record_list(out, items, {item.id: one.text for item, one in rows}, changed, change)
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
        names = (*names, *(name for name in TABLE_STATE if any(name in record for record in records)))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *([record.get(name, "") for name in names] for record in records)])
    return text.getvalue()


def record_list(
    out: Path, items: Sequence[Item], texts: Mapping[str, str], people: Set[str], change: JournalChange
) -> None:
    """Records the new and the removed rows of a caption list in the journal, before the list is rewritten.

    ``texts``: the new texts by id; ``people``: ids of hand-written texts, which are kept.
    """
    before: dict[str, str] = {}
    if out.exists():
        with contextlib.suppress(UsageError):  # a damaged list has been backed up as a whole
            before = ListFile(out, items).read([item.id for item in items])
    known = Provenance.open(out)
    known.record_removed({key: text for key, text in before.items() if key not in texts}, change)
    rows = {key: text_fields(text) for key, text in texts.items() if key not in people}
    same = {key: row for key, row in rows.items() if before.get(key) == texts[key]}
    known.record({key: row for key, row in rows.items() if key not in same}, change, before)
    known.record({key: row for key, row in same.items() if not known.wrote(key, texts[key])})
