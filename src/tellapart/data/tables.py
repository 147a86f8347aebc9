"""Reads the rows of tables as records: CSV, TSV, Excel and Parquet."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from tellapart.data.csv_text import OPEN_QUOTE, csv_reader, mended, separator_of
from tellapart.data.record_keys import ID_KEYS, MAY_LACK, VIZWIZ_FLAGS, exiftool_names, find_key, picture_key, text_keys
from tellapart.data.text_files import plain_suffix
from tellapart.errors import MissingExtra, UsageError, first_line
from tellapart.utils.messages import say

EXCEL_SUFFIXES, PARQUET_SUFFIXES = (".xlsx", ".xlsm"), (".parquet", ".pq")
_SEPARATOR_LINE = re.compile(r"\s*sep=[,;\t|]\n", re.IGNORECASE)  # Excel writes this line before the header


def table_records(path: Path, text: str = "", names: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the location and the fields of each row. Raises a `UsageError` that names the line.

    Args:
        path: an Excel file (its first sheet), a Parquet file (without the bytes of pictures), or a CSV or TSV file.
        text: the content of the CSV or TSV file.
        names: the keys of captions. If given, the header must name a caption, and an id or a picture; a file with two
            columns may have no header (``id``, ``caption``). Other columns of a Parquet file are not read.
    """
    suffix, header = plain_suffix(path), list[str]()
    if suffix in PARQUET_SUFFIXES:
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(_parquet_rows(path, names)))
        return
    for number, row in _sheet_rows(path) if suffix in EXCEL_SUFFIXES else _csv_rows(path, text):
        where, cells = f"{path}, line {number}", [cell.strip() for cell in row]
        if not any(cells):
            continue
        if not header:
            header = exiftool_names(cells) if names else cells
            if not names or _is_header(path, header, names):
                continue
            header = ["id", "caption"]
        if any(cells[len(header) :]):
            raise UsageError(f"{where}: more fields than in the header; put captions with commas in double quotes")
        yield where, dict(zip(header, mended(cells, header), strict=False))


def has_header(path: Path, text: str, names: Sequence[str]) -> bool:
    """Returns whether the first line names table columns: a picture or an id, and a caption."""
    first = _first_line(_SEPARATOR_LINE.sub("", text, count=1))
    cells = first.split(separator_of(first, path))
    cells = [cell.lower() for cell in exiftool_names([cell.strip() for cell in cells])]
    return len(cells) > 1 and bool(picture_key(cells) or find_key(ID_KEYS, cells)) and bool(text_keys(names, cells))


def _first_line(text: str) -> str:
    return text.lstrip("\n").partition("\n")[0]


def _is_header(path: Path, cells: list[str], names: Sequence[str]) -> bool:
    """Returns whether the cells are column names. Otherwise, they must be an id and a caption."""
    has_key, has_text = find_key(ID_KEYS, cells) or picture_key(cells), text_keys(names, cells)
    for name in (has_key, *has_text):
        if name and cells.count(name) > 1:
            raise UsageError(f"{path}: {cells.count(name)} columns are named '{name}'; rename or remove all but one")
    if has_key and (has_text or MAY_LACK in names):
        return True
    if len(cells) == 2 and not has_key and not has_text:
        return False
    raise UsageError(
        f"{path}: expected the columns 'id' (or image, file_name, …) and 'caption' (or text, "
        f"prediction, …), got the header '{','.join(cells)}'"
    )


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """For each row, yields the number of its last line, and its cells."""
    if marked := _SEPARATOR_LINE.match(text):
        text = "\n" + text[marked.end() :]  # keeps line numbers unchanged
    first = _first_line(text)
    reader = csv_reader(io.StringIO(text, newline=""), separator_of(first, path))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error} {OPEN_QUOTE}") from None


def _sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields each row's number, counting from 1, and its cells as text, without trailing empty cells.

    Raises `UsageError` if the file is missing or not an Excel file.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise MissingExtra("excel", "reading Excel files") from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        first, *others = book.worksheets
        if filled := [sheet.title for sheet in others if any(map(any, sheet.iter_rows(values_only=True)))]:
            say(f"{path}: reading only the first sheet, '{first.title}'; sheets in this file: {', '.join(filled)}")
        for number, values in enumerate(first.iter_rows(values_only=True), 1):
            cells = [_cell_text(value) for value in values]
            while cells and not cells[-1]:
                cells.pop()
            yield number, cells
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected the path of a caption file") from None
    except (
        *(OSError, zipfile.BadZipFile, openpyxl.utils.exceptions.InvalidFileException, ParseError),
        *(KeyError, IndexError, ValueError, TypeError),  # raised by openpyxl if parts of the file are damaged
    ) as error:
        raise UsageError(f"{path}: damaged, or not an Excel file ({first_line(error)})") from None


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Excel stores integers as floats
    return "" if value is None else str(value)


def _parquet_rows(path: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows without bytes or, given ``names``, only the matching texts, the id and the picture's path."""
    try:
        import pyarrow.parquet
        from pyarrow import types
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = schema.names
            if names:
                if not (texts := text_keys(names, columns)) and MAY_LACK not in names:
                    raise UsageError(f"{path}: no caption column; available columns: {', '.join(columns)}")
                flags = [find_key((flag,), columns) for flag in VIZWIZ_FLAGS]
                columns = [*texts, *filter(None, (find_key(ID_KEYS, columns), picture_key(columns), *flags))]
            fields = []
            for name in columns:
                kind = schema.field(name).type
                if types.is_struct(kind) and kind.get_field_index("path") >= 0:  # pictures
                    fields.append(f"{name}.path")
                elif not (types.is_binary(kind) or types.is_large_binary(kind)):
                    fields.append(name)
            for batch in file.iter_batches(1024, columns=fields):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected the path of a caption file") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: damaged or not Parquet ({first_line(error)})") from None
