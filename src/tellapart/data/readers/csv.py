"""``csv:FILE``: a table with a header, with one picture or one caption per row.

For example ``image,caption`` followed by ``1.jpg,a dog``; separated by commas, semicolons, tabs or bars, with quotes as
in spreadsheets. `tellapart.data.columns` lists the recognized column names. Other columns are specified with
``image=COLUMN``, ``captions=COLUMN`` and ``id=COLUMN``. A ``split`` column contains the split. Paths are relative to
the file or to ``images=FOLDER``, which also contains the files downloaded from URLs. A cell may also contain a picture
in base64, as in VLMEvalKit's tables. The default id is the path as written. All rows with the same id form one picture
with several captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tellapart.data.columns import COLUMN_KEYS, Columns
from tellapart.data.csv_text import csv_records, mended, separator_of
from tellapart.data.dataset import ReadItems
from tellapart.data.downloaded_pictures import DownloadedPictures
from tellapart.data.encoded_pictures import is_base64
from tellapart.data.line_source import Lines, LineSource, open_lines
from tellapart.data.listed_pictures import picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import StoredPicture
from tellapart.data.reader import READERS, Reader
from tellapart.data.record_keys import ID_KEYS, find_key
from tellapart.data.row_index import RowPosition
from tellapart.data.skipped import Skipped
from tellapart.data.text_files import usage_errors
from tellapart.errors import UsageError
from tellapart.types import Item


def read(path: Path, options: Options) -> ReadItems:
    """Returns items in order of first mention. Raises a `UsageError` that lists the available columns."""
    return CsvTable(path, options).items(options, merge=True)


class CsvTable(LineSource):
    """The rows of a CSV file. Infers the naming scheme of downloaded pictures from the first rows."""

    def __init__(self, path: Path, options: Options) -> None:
        """Raises `UsageError` if the file is empty or has no picture column."""
        super().__init__(path, header=True)
        with usage_errors(path), open_lines(path) as file:
            self._separator = separator_of(next(Lines(file, path), ""), path)
            self._names = [name.strip() for name in next(csv_records(Lines(file, path), self._separator), [])]
        if not self._names:
            raise UsageError(f"{path}: the file is empty; expected a header line with column names")
        self._columns = Columns.choose(self._names, options)
        self._image, self._key = self._names.index(self._columns.image), find_key(ID_KEYS, self._names)
        self._files = DownloadedPictures(picture_folder(options, path.parent))
        rows = ((row, number) for (_, number), row in self.rows(Skipped()) if len(row) > self._image)
        self._files.learn((row[self._image], number - 2) for row, number in rows)

    def records(self, lines: Lines) -> Iterator[list[str] | None]:
        """Yields stripped fields, or None for a blank line."""
        return ([field.strip() for field in record] or None for record in csv_records(lines, self._separator))

    def item(self, row: list[str], place: RowPosition) -> Item:
        """See `RowSource`."""
        where, fields, names = self.where(place), mended(row, self._names), self._names
        if len(fields) != len(names):
            why = "captions that contain the separator must be quoted"
            if len(fields) < len(names):
                why = f"missing '{self._separator}'"
            raise UsageError(f"{where}: {len(fields)} fields, but the header has {len(names)}; {why}")
        cells = dict(zip(names, fields, strict=True))
        picture: StoredPicture
        if is_base64(fields[self._image]):
            picture = self.encoded_picture(place)
            name = cells[self._key] if self._key else f"{self.path.stem}#{place[1]}"
        else:
            picture, name = self._files.picture(fields[self._image], place[1] - 2, where)
        references = self._columns.references(cells, where)
        return Item(self._columns.id_of(cells, name), picture, references, self._columns.split_of(cells))

    def encoded(self, record: list[str]) -> str:
        """See `LineSource`."""
        return record[self._image]


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
