"""Per-picture prompts, made from a template whose fields are filled with each picture's metadata.

Example: ``Tags: {tags}. Folder: {folder}. {text}``. ``{tags|none}`` becomes "none" for pictures without tags, and
``{{tags}}`` stands for the literal text ``{tags}``. The fields are

- ``id``, ``name`` (the file name without its suffix), ``folder`` (the folder's name) and ``text`` (the text file
  beside the picture, unless tellapart wrote it, or the data set's references);
- the keys of a ``.json`` beside the picture (``cat.json`` or ``cat.jpg.json``);
- the columns of the table passed by the user or, failing that, of the data set's own table if it is JSON, CSV or
  Parquet.

If names collide, the later entry in this list wins. Lists are joined by commas; empty values count as missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tellapart.captions.own_files import OwnFiles
from tellapart.data import Dataset
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.field_rows import read_rows
from tellapart.data.pictures import FilePicture
from tellapart.data.records import picture_path, record_id
from tellapart.data.specification import parse
from tellapart.data.text_files import plain_suffix, read_json
from tellapart.errors import UsageError, nearest
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids
from tellapart.utils.messages import say
from tellapart.utils.untrusted_text import clean_text

_FIELD = re.compile(r"(?<!\{)\{(?P<name>[^\W\d][\w .-]*)(?:\|(?P<otherwise>[^{}]*))?\}(?!\})")
_TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".pq")


def has_fields(prompt: str) -> bool:
    """Returns whether a prompt has fields."""
    return _FIELD.search(prompt) is not None


@dataclass(frozen=True)
class Prompts:
    """Each picture's prompt, by id, and the ``template`` from which the prompts were made."""

    template: str
    by_id: Mapping[str, str]

    @classmethod
    def read(cls, template: str, dataset: Dataset, table: Path | None = None) -> Prompts | None:
        """Returns the prompts for a data set's pictures, or None if the template contains no fields.

        table: a file of records that contain fields and an id or a file name. Raises `UsageError` if no picture has a
            field, if some pictures lack a field that has no default, or if the table describes other pictures.
        """
        names = {match["name"] for match in _FIELD.finditer(template)}
        if not names:
            if table is not None:
                raise UsageError(
                    f"--fields {table}: the prompt contains no field; add one, such as --prompt 'Tags: {{tags}}'"
                )
            return None
        seen: set[str] = set()
        rows = _of_table(dataset, table, names, seen)
        fields: dict[str, dict[str, str]] = {}
        files = OwnFiles()
        for item in dataset:
            own = _of_item(item, files)
            seen.update(own)
            fields[item.id] = {name: own[name] for name in names & own.keys()} | rows.get(item.id, {})
        if other := sorted(names - seen):
            hint = nearest(other[0], seen)
            known = "" if hint.startswith("; known") else f" Known fields: {', '.join(sorted(seen))}"
            raise UsageError(f"--prompt: no picture has the field '{other[0]}'{hint}{known}")
        optional = {match["name"] for match in _FIELD.finditer(template) if match["otherwise"] is not None}
        for name in sorted(names - optional):
            if lacking := [key for key, own in fields.items() if name not in own]:
                raise UsageError(
                    f"--prompt: {len(lacking):,} of {len(fields):,} pictures lack the field '{name}' "
                    f"({preview_ids(lacking)}); use {{{name}|TEXT}} to fill in TEXT, which may be empty, for these "
                    "pictures"
                )
        prompts = {key: filled(template, own) for key, own in fields.items()}
        if empty := [key for key, prompt in prompts.items() if not prompt]:
            raise UsageError(
                f"--prompt: the prompt is empty for {len(empty):,} pictures ({preview_ids(empty)}); "
                "add text outside the fields"
            )
        return cls(template, prompts)


def filled(template: str, fields: Mapping[str, str]) -> str:
    """Fills the template with ``fields``."""
    text = _FIELD.sub(lambda match: fields.get(match["name"], match["otherwise"] or ""), template)
    return text.replace("{{", "{").replace("}}", "}").strip()


def _of_item(item: Item, files: OwnFiles) -> dict[str, str]:
    own = PurePosixPath(item.picture.path if isinstance(item.picture, FilePicture) else item.id)
    fields = {"id": item.id, "name": own.stem, "folder": own.parent.name, "text": "\n".join(item.references)}
    if isinstance(item.picture, FilePicture):
        path = item.picture.path
        if item.references and files.are_own(path, item.references):
            del fields["text"]
        for file in (path.with_suffix(".json"), path.with_name(path.name + ".json")):
            if file.is_file():
                record = read_json(file)
                if not isinstance(record, dict):
                    raise UsageError(f"{file}: expected an object of fields, got a {type(record).__name__}")
                fields |= _texts(record)
    return {name: text for name, text in fields.items() if text}


def _own_table(dataset: Dataset) -> Path | None:
    """Returns the file with the data set's own records, or None if there is no such file or more than one."""
    try:
        path = parse(dataset.spec)[1]
    except UsageError:  # the specification has several parts, or is a pattern of files
        return None
    if path.is_dir():
        path = next((path / name for name in METADATA_FILES if (path / name).is_file()), path)
    return path if plain_suffix(path) in _TABLES and path.is_file() else None


def _of_table(dataset: Dataset, table: Path | None, names: Set[str], seen: set[str]) -> dict[str, dict[str, str]]:
    """Returns the fields ``names`` from a table's records, by picture id. Adds all field names to ``seen``."""
    path = table or _own_table(dataset)
    if path is None:
        return {}
    rows: dict[str, dict[str, str]] = {}
    files: dict[str, str] = {}
    bare = 0
    for number, (where, record) in enumerate(read_rows(path), 1):
        file = picture_path(record)
        key = clean_text(record_id(record, where) or file or str(number))
        bare += key == str(number)
        own = _texts(record)
        if table is None and path.name in METADATA_FILES:
            own.pop("text", None)  # a text file beside the picture takes precedence, then the reference
        seen.update(own)
        rows[key] = {name: own[name] for name in names & own.keys()} | rows.get(key, {})
        if file:
            files.setdefault(key, file)
    ids = [item.id for item in dataset]
    known = KnownIds.of(dataset.spec, dataset)
    numbered = 0 < bare == len(rows)
    if numbered and table is None:  # these are the data's own rows, in the same order as the pictures
        return dict(zip(ids, rows.values(), strict=True)) if len(rows) == len(ids) else {}
    given = CaptionFile(str(path), {key: [key] for key in rows}, files, numbered=numbered)
    matched, inside = match_captions(given, known, str(path)), set(ids)
    found = {id_: rows[keys[0]] for id_, keys in matched.texts.items() if id_ in inside}
    if table is not None:
        if not found:
            raise UsageError(
                f"{table}: no record matches a picture in {dataset.spec}; expected picture ids or file names"
            )
        if matched.how:
            say(matched.how)
    return found


def _texts(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns a record's non-empty fields that are text, numbers, or lists of text and numbers. Each value is joined
    into one line.
    """
    fields: dict[str, str] = {}
    for name, value in record.items():
        parts: Sequence[Any] = value if isinstance(value, list) else [value]
        if all(isinstance(part, str | int | float) for part in parts):
            text = ", ".join(" ".join(clean_text(str(part)).split()) for part in parts if part != "")
            fields |= {str(name).strip(): text} if text.strip(", ") else {}
    return fields
