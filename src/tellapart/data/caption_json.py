"""Reads captions from JSON: lines, lists, objects keyed by id, and COCO's and Karpathy's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tellapart.data.caption_entries import CaptionEntry, entry_of, split_of, text_value, texts_in
from tellapart.data.record_keys import (
    EXIFTOOL_KEY,
    ID_KEYS,
    MAY_LACK,
    exiftool_names,
    find_key,
    find_value,
    picture_key,
    text_keys,
)
from tellapart.data.records import picture_path
from tellapart.data.splits import split_records
from tellapart.errors import UsageError
from tellapart.utils.strict_json import parse_json

_WRAPPERS = ("results", "predictions", "outputs", "captions", "data", "samples", "sentences", "items", "rows")


def is_json_lines(text: str) -> bool:
    """Returns whether the first line is a complete JSON value that is followed by more text."""
    first, _, rest = text.strip().partition("\n")
    try:
        return isinstance(parse_json(first), dict | list) and bool(rest.strip())
    except (ValueError, RecursionError):
        return False


def parse_value(path: Path, text: str, line: int = 0) -> Any:
    try:
        return parse_json(text)
    except RecursionError:
        raise UsageError(f"{path}, line {line or 1}: the JSON is nested too deeply") from None
    except ValueError as error:
        at = line or getattr(error, "lineno", 0)  # 0: the error concerns the whole text, such as a duplicate key
        where = f"{path}, line {at}" if at else path
        raise UsageError(f"{where}: invalid JSON ({getattr(error, 'msg', error)})") from None


def read_json_lines(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries of a file with one JSON value per line. Raises `UsageError` with the line number."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield entry_of(f"{path}, line {number}", parse_value(path, line, number), names)


def read_json_text(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries of a file that is a single JSON value. Raises a `UsageError` that names the line."""
    return _read_value(path, parse_value(path, text), names)


def _read_value(path: Path, data: Any, names: Sequence[str], *, unwrap: bool = True) -> Iterator[CaptionEntry]:
    data = split_records(data)
    if isinstance(data, dict):
        yield from _read_object(path, data, names, unwrap)
    elif isinstance(data, list):
        printed = [record for record in data if isinstance(record, dict) and EXIFTOOL_KEY in record]
        if any(text_keys(names, exiftool_names(list(record))) for record in printed):
            names = (*names, MAY_LACK)  # pictures without the requested field have only a SourceFile
        for number, record in enumerate(data, 1):
            yield entry_of(f"{path}, entry {number}", record, names)
    else:
        raise UsageError(
            f"{path}: expected a list of records or an object that maps ids to captions, got a {type(data).__name__}"
        )


def _read_object(path: Path, data: dict[str, Any], names: Sequence[str], unwrap: bool) -> Iterator[CaptionEntry]:
    images = data.get("images")
    if isinstance(data.get("annotations"), list):
        listed = [image for image in images or () if isinstance(image, dict)] if isinstance(images, list) else []
        files: dict[str, str] = {}
        for image in listed:
            if files.setdefault(key := str(image.get("id")), file := picture_path(image)) != file:
                raise UsageError(
                    f"{path}: two pictures have the id '{key}', {files[key]} and {file}; ids must be unique"
                )
        for entry in _read_value(path, data["annotations"], names):
            yield replace(entry, file=entry.file or files.get(entry.id, ""))
        return
    if isinstance(images, list) and not (find_value(ID_KEYS, data) or find_key(names, data)):
        yield from _read_karpathy(path, images)
        return
    if _is_record(data, names):
        yield entry_of(f"{path}, entry 1", data, names)  # a JSONL file with one line
        return
    wrapped = [key for key in _WRAPPERS if unwrap and isinstance(data.get(key), list | dict)]
    if len(wrapped) == 1 and (len(data) == 1 or _holds_records(data[wrapped[0]])):
        yield from _read_value(path, data[wrapped[0]], names, unwrap=False)
        return
    for key, value in data.items():
        where = f"{path}, id {key!r}"
        record = value if isinstance(value, dict) and text_keys(names, value) else None
        inner = value if record is None else text_value(names, record)
        own = record or {}
        yield CaptionEntry(str(key), picture_path(own), texts_in(where, value, inner), split_of(own))


def _holds_records(value: Any) -> bool:
    return bool(value) and (isinstance(value, dict) or isinstance(value[0], dict))


def _is_record(data: dict[str, Any], names: Sequence[str]) -> bool:
    return bool(text_keys(names, data)) and bool(find_key(ID_KEYS, data) or picture_key(data))


def _read_karpathy(path: Path, images: list[Any]) -> Iterator[CaptionEntry]:
    for number, image in enumerate(images, 1):
        where = f"{path}, image {number}"
        if not isinstance(image, dict) or not isinstance(image.get("sentences"), list):
            raise UsageError(f"{where}: has no 'sentences'; expected Karpathy's JSON, or COCO's with 'annotations'")
        key = next((image[name] for name in ("cocoid", "filename", "imgid") if name in image), None)
        if key is None:
            raise UsageError(f"{where}: has neither 'cocoid' nor 'filename' nor 'imgid'")
        texts = texts_in(where, image["sentences"], image["sentences"])
        yield CaptionEntry(str(key), picture_path(image), texts, split_of(image))
