"""Parses a record of a caption file into a picture's texts, id and file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.data.batch_failures import batch_failure
from tellapart.data.caption_values import CaptionText, caption_texts, with_flags
from tellapart.data.file_names import is_file_name
from tellapart.data.record_keys import EXIFTOOL_KEY, MAY_LACK, exiftool_names, matching_keys, text_keys
from tellapart.data.records import picture_path, record_id
from tellapart.errors import UsageError
from tellapart.utils.untrusted_text import clean_line


@dataclass(frozen=True)
class CaptionEntry:
    """One record: a picture's texts, id, file and split as written in the file ("" if absent)."""

    id: str
    file: str
    texts: list[CaptionText]
    split: str = ""
    failure: str = ""  # why the server's batch has no answer for this record


def entry_of(where: str, record: Any, names: Sequence[str]) -> CaptionEntry:
    """Parses a record: an object with a text under one of ``names``, a text, or a list of texts.

    Raises a `UsageError` whose message begins with ``where``.
    """
    if isinstance(record, list) and len(record) > 1 and isinstance(record[0], str | int):
        id_, file = split_key(str(record[0]).strip())
        if file or id_.isdecimal():  # ["x.jpg", "a dog"] or [391895, "a dog"]
            return CaptionEntry(id_, file, texts_in(where, record[1:]))
    if isinstance(record, str | list):  # a list of texts, or a pipeline's [{"generated_text"}] for each picture
        return CaptionEntry("", "", texts_in(where, record, record))
    if not isinstance(record, dict):
        raise UsageError(f"{where}: expected {{'id': …, 'caption': …}}, got a {type(record).__name__}")
    if failure := batch_failure(record):
        return CaptionEntry(record_id(record, where), "", [], failure=failure)
    if EXIFTOOL_KEY in record:  # exiftool's JSON writes texts that consist of digits as numbers
        values = [str(value) if type(value) in (int, float) else value for value in record.values()]
        record = dict(zip(exiftool_names(list(record)), values, strict=True))
        # skips empty fields, which could hide other fields
        filled = {key: value for key, value in record.items() if value != ""}
        record = filled if text_keys(names, filled) else record
    if not text_keys(names, record) and MAY_LACK not in names:
        raise UsageError(f"{where}: no caption text; expected the key 'caption', got {sorted(map(str, record))}")
    document = record.get("doc", record.get("data"))  # where lmms-eval and Label Studio keep the original record
    inner = document if isinstance(document, dict) else {}
    parts = record.values() if "doc_id" in record else ()  # in lmms-eval's samples, the metrics identify the picture
    metric = next((part for part in parts if isinstance(part, dict) and "image_id" in part), {})
    key = record_id(metric, where) or record_id(inner, where) or record_id(record, where)
    texts = texts_in(where, text_value(names, record), record)
    return CaptionEntry(key, picture_path(record) or picture_path(inner), texts, split_of(record) or split_of(inner))


def split_key(key: str) -> tuple[str, str]:
    """Returns (id, file) for the key of a line or pair: it is a file if it is the name of a picture, else an id."""
    return ("", key) if is_file_name(key) else (key, "")


def split_of(record: Mapping[str, Any]) -> str:
    """Returns the split of a record, or "" if it has none."""
    split = record.get("split")
    return split if isinstance(split, str) else ""


def text_value(names: Sequence[str], record: dict[str, Any]) -> Any:
    """Returns the first value under one of ``names`` or, if there is none, a list of the values under numbered keys.

    Skips empty lists, but not empty texts.
    """
    values = [record[key] for key in matching_keys(names, record)]
    if not values:
        return [record[key] for key in text_keys(names, record)]
    return next((value for value in values if value is not None and value != []), None)


def texts_in(where: str, value: Any, holder: Any = None) -> list[CaptionText]:
    """Returns the cleaned texts of a value.

    ``holder``: the record or the text that contains the value. If given, a missing or empty value yields one empty
    caption. VizWiz's flags in a record apply to its texts.
    """
    found = caption_texts(value, where) or ([CaptionText("")] if isinstance(holder, dict | str) else [])
    if isinstance(holder, dict):
        found = with_flags(found, holder, where)
    return [CaptionText(clean_line(text), error, flag) for text, error, flag in found]
