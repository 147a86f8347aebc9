"""Reads files of human judgements (text, JSON, Parquet) and parses their numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.strict_json import parse_json


def open_parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("parquet", f"{path.name}, a Parquet file,") from None
    return parquet.ParquetFile(path)


def column_names(path: Path) -> set[str]:
    return set(open_parquet(path).schema_arrow.names)


def rating_of(path: Path, value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}: '{value}' is not a rating; expected a number")
    return number


def read_json(path: Path) -> Any:
    try:
        return parse_json(text_of(path))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error})") from None


def entries_of(path: Path, value: Any, kind: type) -> list[Any]:
    found = list(value.values()) if isinstance(value, dict) else list(value)
    if not all(isinstance(entry, kind) for entry in found):
        raise UsageError(
            f"{path}: expected a JSON object whose values are objects, one per entry; for another layout, use --layout"
        )
    return found


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return path.read_text(encoding="latin-1")  # Composite's files come from a spreadsheet
