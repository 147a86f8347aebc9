"""Parses a record of a caption file into a picture's texts, id and file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.data.batch_failures import batch_failure
from tellapart.data.caption_values import MarkedText, caption_texts, with_flags
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
    texts: list[str]
    split: str = ""
    failure: str = ""  # why the server's batch has no answer for this record


def entry_of(where: str, record: Any, names: Sequence[str]) -> CaptionEntry:
    """Parses a record: an object with a text under one of ``names``, a text, or a list of texts.

    Raises a `UsageError` whose message begins with ``where``.
    """
    if isinstance(record, list) and len(record) > 1:  # ["x.jpg", "a dog"] or [391895, "a dog"]
        first = str(record[0]).strip() if isinstance(record[0], str | int) else ""
        if is_file_name(first) or first.isdecimal():
            id_, file = ("", first) if is_file_name(first) else (first, "")
            return CaptionEntry(id_, file, texts_in(where, record[1:], record[1:]))
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
    texts = texts_in(where, record, text_value(names, record))
    texts = with_flags(texts, record, where)
    return CaptionEntry(key, picture_path(record) or picture_path(inner), texts, split_of(record) or split_of(inner))


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


def texts_in(where: str, holder: Any, value: Any) -> list[str]:
    """Returns the cleaned texts of a value. If ``holder`` is a record or a text, a missing or empty value yields one
    empty caption.
    """
    found = [
        MarkedText(clean_line(text), text.error, text.flag) if isinstance(text, MarkedText) else clean_line(text)
        for text in caption_texts(value, where)
    ]
    return found or ([""] if isinstance(holder, dict | str) else [])
