"""``csv:FILE``: a table with a header, with one picture or one caption per row.

For example ``image,caption`` followed by ``1.jpg,a dog``; separated by commas, semicolons, tabs or bars, with quotes as
in spreadsheets. `tellapart.data.columns` lists the recognized column names. Other columns are specified with
``image=COLUMN``, ``captions=COLUMN`` and ``id=COLUMN``. A ``split`` column contains the split. Paths are relative to
the file or to ``images=FOLDER``, which also contains the files downloaded from URLs. A cell may also contain a picture
in base64, as in VLMEvalKit's tables. The default id is the path as written. All rows with the same id form one picture
with several captions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.csv_text import csv_records, mended
from tellapart.data.dataset import Skipped
from tellapart.data.downloads import MOST_ROWS
from tellapart.data.encoded_pictures import is_base64
from tellapart.data.line_source import EncodedCell, Lines, LineSource, open_lines
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.picture_cells import PictureLocator
from tellapart.data.pictures import StoredPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import ID_KEYS, find_key
from tellapart.data.row_index import RowPosition, stream_items
from tellapart.data.text_files import usage_errors
from tellapart.errors import UsageError
from tellapart.types import Item

SEPARATORS = ",;\t|"


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Returns items in order of first mention. Raises a `UsageError` that lists the available columns."""
    separator, names = _header(path)
    table = CsvTable(path, separator, names, Columns.choose(names, options), picture_folder(options, path.parent))
    table.learn()
    return stream_items(table, options, merge=True)


def _header(path: Path) -> tuple[str, list[str]]:
    """Returns the separator and the column names. Raises `UsageError` if the file is empty."""
    with usage_errors(path), open_lines(path) as file:
        separator = max(SEPARATORS, key=next(Lines(file, path), "").count)
        names = [name.strip() for name in next(_fields(Lines(file, path), separator), None) or []]
    if not names:
        raise UsageError(f"{path}: the file is empty; expected a header line with column names")
    return separator, names


def _fields(lines: Lines, separator: str) -> Iterator[list[str] | None]:
    """Yields stripped fields, or None for a blank line."""
    return ([field.strip() for field in record] or None for record in csv_records(lines, separator))


class CsvTable(LineSource):
    """The rows of a CSV file."""

    def __init__(self, path: Path, separator: str, names: Sequence[str], columns: Columns, folder: Path) -> None:
        super().__init__(path, header=True)
        self._separator, self._names, self._columns = separator, names, columns
        self._where_files = PictureLocator(folder)
        self._key = find_key(ID_KEYS, names)

    def learn(self) -> None:
        """Infers the naming scheme of downloaded files from the first rows."""
        column = self._names.index(self._columns.image)
        some = islice(self.rows(), MOST_ROWS)
        self._where_files.learn((record[column], place[1] - 2) for place, record in some if len(record) > column)

    def records(self, lines: Lines) -> Iterator[list[str] | None]:
        """Yields fields, skipping blank lines."""
        return _fields(lines, self._separator)

    def item(self, record: list[str], place: RowPosition, where: str) -> Item:
        """See `LineSource`."""
        record = mended(record, self._names)
        if len(record) != len(self._names):
            why = "captions that contain the separator must be quoted"
            if len(record) < len(self._names):
                why = f"missing '{self._separator}'"
            raise UsageError(f"{where}: {len(record)} fields, but the header has {len(self._names)}; {why}")
        row: dict[str, Any] = dict(zip(self._names, record, strict=True))
        picture: StoredPicture
        if is_base64(row[self._columns.image]):
            picture = EncodedCell(self, place)
            name = row[self._key] if self._key else f"{self.path.stem}#{place[1]}"
        else:
            picture, name = self._where_files.picture(row[self._columns.image], place[1] - 2, where)
        references = self._columns.references(row, where)
        return Item(self._columns.id_of(row, name), picture, references, self._columns.split_of(row))

    def encoded(self, record: list[str]) -> str:
        """See `LineSource`."""
        return record[self._names.index(self._columns.image)]


READERS.register(
    Reader(
        name="csv",
        factory=read,
        help="table with a header; column names are recognized, or specified by keys",
        keys=COLUMN_KEYS,
        layouts=(
            (
                (
                    "table with a header, with one picture or one caption per row (separated by "
                    "commas, semicolons, tabs or bars)"
                ),
                "`data.csv`, `csv:captions.txt?images=Images`",
            ),
            ("VLMEvalKit's TSV, with pictures in base64", "`COCO_VAL.tsv`"),
            ("Flickr30k as a table (`results.csv`)", "`csv:results.csv?images=flickr30k_images`"),
        ),
        suffixes=(".csv", ".tsv"),
    )
)
