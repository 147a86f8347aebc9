"""Reads captions from tables: CSV, TSV, Excel and Parquet."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from tellapart.data.caption_entries import CaptionEntry, entry_of
from tellapart.data.csv_text import OPEN_QUOTE, csv_reader, mended
from tellapart.data.record_keys import ID_KEYS, MAY_LACK, VIZWIZ_FLAGS, exiftool_names, find_key, picture_key, text_keys
from tellapart.data.text_files import plain_suffix
from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.messages import say


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
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
        raise UsageError(f"{path}: damaged, or not an Excel file ({str(error).splitlines()[0] or error!r})") from None


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Excel stores integers as floats
    return "" if value is None else str(value)


SEPARATORS = ",;\t|"
_SEPARATOR_LINE = re.compile(r"\s*sep=[,;\t|]\n", re.IGNORECASE)  # Excel writes this line before the header


def has_header(text: str, names: Sequence[str]) -> bool:
    """Returns whether the first line names table columns: a picture or an id, and a caption."""
    first = _SEPARATOR_LINE.sub("", text, count=1).lstrip("\n").partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    cells = [cell.lower() for cell in exiftool_names([cell.strip() for cell in first.split(separator)])]
    return len(cells) > 1 and bool(picture_key(cells) or find_key(ID_KEYS, cells)) and bool(text_keys(names, cells))


def read_table(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries in CSV or TSV text. Raises `UsageError` with the line number."""
    if marked := _SEPARATOR_LINE.match(text):
        text = "\n" + text[marked.end() :]  # keeps line numbers unchanged
    first = text.lstrip("\n").partition("\n")[0]
    separator = "\t" if "\t" in first and plain_suffix(path) == ".tsv" else max(SEPARATORS, key=first.count)
    return _read_rows(path, csv_rows(path, text, separator), names)


def read_excel(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries of an Excel file's first sheet. Raises `UsageError` with the row number."""

    return _read_rows(path, sheet_rows(path), names)


def csv_rows(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """For each row, yields the number of its last line, and its cells."""
    reader = csv_reader(io.StringIO(text, newline=""), separator)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error} {OPEN_QUOTE}") from None


def _read_rows(path: Path, rows: Iterable[tuple[int, list[str]]], names: Sequence[str]) -> Iterator[CaptionEntry]:
    header: list[str] | None = None
    for number, row in rows:
        where, cells = f"{path}, line {number}", [cell.strip() for cell in row]
        if not any(cells):
            continue
        if header is None:
            cells = exiftool_names(cells)
            header = _header(path, cells, names)
            if header is not cells:
                yield entry_of(where, dict(zip(header, cells, strict=True)), names)
        elif len(cells) > len(header):
            raise UsageError(f"{where}: more fields than in the header; put captions with commas in double quotes")
        else:
            yield entry_of(where, dict(zip(header, mended(cells, header), strict=False)), names)


def _header(path: Path, cells: list[str], names: Sequence[str]) -> list[str]:
    """Returns the column names: the cells themselves, or ``id`` and ``caption`` for two cells that are not names."""
    has_key, has_text = find_key(ID_KEYS, cells) or picture_key(cells), text_keys(names, cells)
    for name in (has_key, *has_text):
        if name and cells.count(name) > 1:
            raise UsageError(f"{path}: {cells.count(name)} columns are named '{name}'; rename or remove all but one")
    if has_key and (has_text or MAY_LACK in names):
        return cells
    if len(cells) == 2 and not has_key and not has_text:
        return ["id", "caption"]
    raise UsageError(
        f"{path}: expected the columns 'id' (or image, file_name, …) and 'caption' (or text, "
        f"prediction, …), got the header '{','.join(cells)}'"
    )


def read_parquet(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """Yields the entries of a Parquet file without reading the pictures' bytes. Raises `UsageError`."""
    for number, row in enumerate(parquet_rows(path, names)):
        yield entry_of(f"{path}, row {number}", row, names)


def _without_bytes(schema: Any, name: str) -> str:
    """Returns the column's name or, if it is a struct of pictures, the name of the path field."""
    import pyarrow

    kind = schema.field(name).type
    return f"{name}.path" if pyarrow.types.is_struct(kind) and kind.get_field_index("path") >= 0 else name


def parquet_rows(path: Path, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Reads all columns except bytes or, given ``names``, only the matching texts, the id and the picture's path."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    try:
        schema = pyarrow.parquet.read_schema(path)
        columns = schema.names
        if names:
            if not (texts := text_keys(names, columns)) and MAY_LACK not in names:
                raise UsageError(f"{path}: no caption column; available columns: {', '.join(columns)}")
            flags = [find_key((flag,), columns) for flag in VIZWIZ_FLAGS]
            columns = [*texts, *filter(None, (find_key(ID_KEYS, columns), picture_key(columns), *flags))]
        columns = [_without_bytes(schema, name) for name in columns]
        kept = [name for name in columns if "." in name or not pyarrow.types.is_binary(schema.field(name).type)]
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path, columns=kept).to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected the path of a caption file") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: damaged or not Parquet ({str(error).splitlines()[0]})") from None
    return rows
