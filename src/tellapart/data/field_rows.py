"""Reads a file's records with all their fields, regardless of their content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tellapart.data.caption_json import is_json_lines, parse_value
from tellapart.data.caption_tables import SEPARATORS, csv_rows, parquet_rows, sheet_rows
from tellapart.data.csv_text import mended
from tellapart.data.text_files import plain_suffix, read_nonempty
from tellapart.errors import UsageError


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the position of each record and all its fields except the bytes of pictures.

    Reads JSON lines, a JSON list of records, an object of records by id, tables with a header and Parquet.
    Raises `UsageError` for any other file.
    """
    suffix = plain_suffix(path)
    if suffix in (".parquet", ".pq"):
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(parquet_rows(path)))
        return
    text = "" if suffix in (".xlsx", ".xlsm") else read_nonempty(path)
    if not text or suffix in (".csv", ".tsv"):
        first = text.partition("\n")[0]
        rows = csv_rows(path, text, max(SEPARATORS, key=first.count)) if text else sheet_rows(path)
        header: list[str] = []
        for number, row in rows:
            cells = [cell.strip() for cell in row]
            if header and any(cells):
                yield f"{path}, line {number}", dict(zip(header, mended(cells, header), strict=False))
            header = header or cells
        return
    if suffix in (".jsonl", ".ndjson") or is_json_lines(text):
        values = [parse_value(path, line, n) if line.strip() else None for n, line in enumerate(text.split("\n"), 1)]
    else:
        values = parse_value(path, text)
    if isinstance(values, dict):  # as kohya's scripts write it
        values = [{"id": key, **value} if isinstance(value, dict) else value for key, value in values.items()]
    for number, value in enumerate(values if isinstance(values, list) else [values], 1):
        if value is not None and not isinstance(value, dict):
            raise UsageError(f"{path}, record {number}: expected an object of fields, got a {type(value).__name__}")
        if value is not None:
            yield f"{path}, record {number}", value
