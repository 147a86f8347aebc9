"""Caption files that are tables: CSV, TSV, Excel and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.data.base import plain_suffix
from tellapart.data.caption_records import CaptionEntry, entry_of
from tellapart.data.lines import OPEN_QUOTE, csv_reader, mended
from tellapart.data.records import ID_KEYS, find_key, picture_key, text_keys
from tellapart.errors import MissingExtra, UsageError

_SEPARATORS = ",;\t|"


def has_header(text: str, names: Sequence[str]) -> bool:
    """Whether a text's first line names the columns of a table: a picture or an id, and a caption."""
    first = text.lstrip("\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    cells = [cell.strip().lower() for cell in first.split(separator)]
    return len(cells) > 1 and bool(picture_key(cells) or find_key(ID_KEYS, cells)) and bool(text_keys(names, cells))


def read_table(path: Path, text: str, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a CSV or TSV text. Raises `UsageError` with the line's number."""
    first = text.lstrip("\n").partition("\n")[0]
    separator = "\t" if "\t" in first and plain_suffix(path) == ".tsv" else max(_SEPARATORS, key=first.count)
    return _read_rows(path, _csv_rows(path, text, separator), names)


def read_excel(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of an Excel file's first sheet. Raises `UsageError` with the row's number."""
    from tellapart.data.spreadsheet import sheet_rows

    return _read_rows(path, sheet_rows(path), names)


def _csv_rows(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the line on which each row ends, and its cells."""
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
            header = _header(path, cells, names)
            if header is not cells:
                yield entry_of(where, dict(zip(header, cells, strict=True)), names)
        elif len(cells) > len(header):
            raise UsageError(f"{where}: has more fields than the header; put captions with commas in double quotes")
        else:
            yield entry_of(where, dict(zip(header, mended(cells, header), strict=False)), names)


def _header(path: Path, cells: list[str], names: Sequence[str]) -> list[str]:
    """The names of the columns: the cells themselves, or of two cells that are none ``id`` and ``caption``."""
    has_key, has_text = find_key(ID_KEYS, cells) or picture_key(cells), text_keys(names, cells)
    if has_key and has_text:
        return cells
    if len(cells) == 2 and not has_key and not has_text:
        return ["id", "caption"]
    raise UsageError(
        f"{path}: the header is '{','.join(cells)}'; expected the columns 'id' (or image, file_name, …) and 'caption' "
        "(or text, prediction, …)"
    )


def read_parquet(path: Path, names: Sequence[str]) -> Iterator[CaptionEntry]:
    """The entries of a Parquet file; the bytes of pictures are not read. Raises `UsageError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "reading Parquet") from None
    try:
        schema = pyarrow.parquet.read_schema(path)
        texts = text_keys(names, schema.names)
        if not texts:
            raise UsageError(f"{path}: no column of captions; there are: {', '.join(schema.names)}")
        wanted = [*texts, *filter(None, (find_key(ID_KEYS, schema.names), picture_key(schema.names)))]
        rows = pyarrow.parquet.read_table(path, columns=[_without_bytes(schema, name) for name in wanted]).to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path}: damaged or not Parquet ({str(error).splitlines()[0]})") from None
    for number, row in enumerate(rows):
        yield entry_of(f"{path}, row {number}", row, names)


def _without_bytes(schema: Any, name: str) -> str:
    """A column, or of pictures in a struct only their paths."""
    import pyarrow

    kind = schema.field(name).type
    return f"{name}.path" if pyarrow.types.is_struct(kind) and kind.get_field_index("path") >= 0 else name
