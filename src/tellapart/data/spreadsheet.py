"""The first sheet of an Excel file, as VLMEvalKit and people's spreadsheets have captions."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import ParseError

from tellapart.errors import MissingExtra, UsageError


def sheet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of each row, from 1, and its cells as text; empty cells at its end are left out.

    Raises `UsageError` for a file that is not there, or no Excel file.
    """
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ModuleNotFoundError:
        raise MissingExtra("excel", "reading Excel files") from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        for number, values in enumerate(book.worksheets[0].iter_rows(values_only=True), 1):
            cells = [_cell_text(value) for value in values]
            while cells and not cells[-1]:
                cells.pop()
            yield number, cells
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of a file of captions") from None
    except (
        *(OSError, zipfile.BadZipFile, InvalidFileException, ParseError),
        *(KeyError, IndexError, ValueError, TypeError),  # of openpyxl, where parts of the file are damaged
    ) as error:
        raise UsageError(f"{path}: damaged or no Excel file ({str(error).splitlines()[0] or error!r})") from None


def _cell_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # Excel has no whole numbers
    return "" if value is None else str(value)
