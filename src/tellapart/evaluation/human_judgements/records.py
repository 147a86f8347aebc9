"""Reads files of human judgements (text, JSON lines, CSV, Parquet) and parses their numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.strict_json import parse_json


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the records of a file: JSON lines, CSV with a header, or Parquet without the columns of pictures."""
    if path.suffix == ".parquet":
        table = open_parquet(path)
        fields = [own for own in table.schema_arrow if own.name != "binary" and "binary" not in str(own.type)]
        for batch in table.iter_batches(batch_size=256, columns=[own.name for own in fields]):
            yield from batch.to_pylist()
    elif (text := text_of(path)).lstrip().startswith("{"):
        yield from (parse_json(line) for line in text.splitlines() if line.strip())
    else:
        yield from csv.DictReader(io.StringIO(text))


def open_parquet(path: Path) -> Any:
    """Opens a Parquet file. Raises `UsageError` if it is damaged, and `MissingExtra` if pyarrow is not installed."""
    try:
        from pyarrow import parquet

        return parquet.ParquetFile(path)
    except ImportError:
        raise MissingExtra("parquet", f"{path.name}, a Parquet file,") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path} as Parquet ({error})") from None


def text_of(path: Path) -> str:
    """Reads a text file as UTF-8 or, because Composite's files come from a spreadsheet, as Latin-1."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return path.read_text(encoding="latin-1")


def rating_of(path: Path, value: object) -> float:
    """Parses a rating. Raises `UsageError` if it is not a finite number."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{path}: '{value}' is not a rating; expected a number")
    return number
