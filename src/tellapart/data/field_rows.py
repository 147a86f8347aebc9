"""Reads a file's records with all their fields, regardless of their content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tellapart.data.tables import EXCEL_SUFFIXES, PARQUET_SUFFIXES, table_records
from tellapart.data.text_files import is_json_lines, json_lines, parsed_json, plain_suffix, read_nonempty
from tellapart.errors import UsageError


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the position of each record and all its fields except the bytes of pictures.

    Reads JSON lines, a JSON list of records, an object of records by id, tables with a header and Parquet.
    Skips null. Raises `UsageError` for any other file.
    """
    suffix = plain_suffix(path)
    text = "" if suffix in EXCEL_SUFFIXES + PARQUET_SUFFIXES else read_nonempty(path)
    if not text or suffix in (".csv", ".tsv"):
        yield from table_records(path, text)
        return
    if suffix in (".jsonl", ".ndjson") or is_json_lines(text):
        rows = json_lines(path, text)
    else:
        values = parsed_json(text, str(path))
        if isinstance(values, dict):  # as kohya's scripts write it
            values = [{"id": key, **value} if isinstance(value, dict) else value for key, value in values.items()]
        values = values if isinstance(values, list) else [values]
        rows = ((f"{path}, record {number}", value) for number, value in enumerate(values, 1))
    for where, value in rows:
        if value is None:
            continue
        if not isinstance(value, dict):
            raise UsageError(f"{where}: expected an object of fields, got a {type(value).__name__}")
        yield where, value
