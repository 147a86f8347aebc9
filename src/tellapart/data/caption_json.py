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

_WRAPPERS = ("results", "predictions", "outputs", "captions", "data", "samples", "sentences", "items", "rows")


def json_entries(path: Path, data: Any, names: Sequence[str], *, unwrap: bool = True) -> Iterator[CaptionEntry]:
    """Yields the entries of a file that is a single JSON value. ``unwrap``: whether an object may hold the records."""
    data = split_records(data)
    if isinstance(data, dict):
        yield from _object_entries(path, data, names, unwrap)
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


def _object_entries(path: Path, data: dict[str, Any], names: Sequence[str], unwrap: bool) -> Iterator[CaptionEntry]:
    images = data.get("images")
    wrapped = [key for key in _WRAPPERS if unwrap and isinstance(data.get(key), list | dict)]
    if isinstance(data.get("annotations"), list):  # COCO
        files: dict[str, str] = {}
        for image in images if isinstance(images, list) else ():
            key, file = (str(image.get("id")), picture_path(image)) if isinstance(image, dict) else ("", "")
            if files.setdefault(key, file) != file:
                raise UsageError(
                    f"{path}: two pictures have the id '{key}', {files[key]} and {file}; ids must be unique"
                )
        for entry in json_entries(path, data["annotations"], names):
            yield replace(entry, file=entry.file or files.get(entry.id, ""))
    elif isinstance(images, list) and not (find_value(ID_KEYS, data) or find_key(names, data)):
        yield from _karpathy_entries(path, images)
    elif text_keys(names, data) and (find_key(ID_KEYS, data) or picture_key(data)):
        yield entry_of(f"{path}, entry 1", data, names)  # a JSONL file with one line
    elif len(wrapped) == 1 and (len(data) == 1 or _holds_records(data[wrapped[0]])):
        yield from json_entries(path, data[wrapped[0]], names, unwrap=False)
    else:
        for key, value in data.items():
            record = value if isinstance(value, dict) and text_keys(names, value) else {}
            texts = texts_in(f"{path}, id {key!r}", text_value(names, record) if record else value, value)
            yield CaptionEntry(str(key), picture_path(record), texts, split_of(record))


def _holds_records(value: Any) -> bool:
    return bool(value) and (isinstance(value, dict) or isinstance(value[0], dict))


def _karpathy_entries(path: Path, images: list[Any]) -> Iterator[CaptionEntry]:
    for number, image in enumerate(images, 1):
        where = f"{path}, image {number}"
        if not isinstance(image, dict) or not isinstance(image.get("sentences"), list):
            raise UsageError(f"{where}: has no 'sentences'; expected Karpathy's JSON, or COCO's with 'annotations'")
        key = next((image[name] for name in ("cocoid", "filename", "imgid") if name in image), None)
        if key is None:
            raise UsageError(f"{where}: has neither 'cocoid' nor 'filename' nor 'imgid'")
        yield CaptionEntry(str(key), picture_path(image), texts_in(where, image["sentences"]), split_of(image))
