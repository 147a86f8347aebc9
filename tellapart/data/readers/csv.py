"""``csv:FILE``: a table with a header, a picture a row, or a caption a row.

``image,caption`` and under it ``1.jpg,a dog``; separated by commas, semicolons, tabs or bars; quotes as spreadsheets
set them. Known names of columns: `tellapart.data.columns`; others are named with ``image=COLUMN``,
``captions=COLUMN``, ``id=COLUMN``; a column ``split`` is a split. Paths are relative to the file or to
``images=FOLDER``; of an address (``https://…``) what was fetched is sought there. Without an id the path as written
is the id. Rows of the same id are one picture with several captions, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tellapart.data import columns
from tellapart.data.base import Options, usage_errors
from tellapart.data.columns import Columns, PictureLocator
from tellapart.data.dataset import Skipped
from tellapart.data.downloads import MOST_ROWS
from tellapart.data.lines import Lines, LineSource, csv_records
from tellapart.data.registry import READERS, Reader
from tellapart.data.rows import stream_items
from tellapart.errors import UsageError
from tellapart.types import Item

SEPARATORS = ",;\t|"


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Items in the order in which the file first names them. Raises `UsageError` that names the columns there are."""
    return stream_items(Table(path, options), options, merge=True)


class Table(LineSource):
    """The rows of a CSV file."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, header=True)
        self._separator = ","
        with usage_errors(path), path.open("rb") as file:
            first = next(Lines(file, path), "")
            self._separator = max(SEPARATORS, key=first.count)
            self._names = [name.strip() for name in next(self.records(Lines(file, path)), None) or []]
        if not self._names:
            raise UsageError(f"{path}: an empty file; a line with the names of the columns was expected")
        self._columns = Columns.choose(self._names, options)
        self._where_files = PictureLocator(
            Path(options.text("images")).expanduser() if options.text("images") else path.parent
        )
        column = self._names.index(self._columns.image)
        some = islice(self.rows(), MOST_ROWS)
        self._where_files.learn((record[column], place[1] - 2) for place, record in some if len(record) > column)

    def records(self, lines: Lines) -> Iterator[list[str] | None]:
        """Fields without the blanks around them; blank lines are passed over."""
        return ([field.strip() for field in record] or None for record in csv_records(lines, self._separator))

    def item(self, record: list[str], number: int, where: str) -> Item:
        """See `LineSource`."""
        if len(record) != len(self._names):
            raise UsageError(
                f"{where}: {len(record)} fields where the header has {len(self._names)}; "
                "captions that hold the separator must stand in quotes"
            )
        row: dict[str, Any] = dict(zip(self._names, record, strict=True))
        picture, name = self._where_files.picture(row[self._columns.image], number - 2, where)
        references = self._columns.references(row, where)
        return Item(self._columns.id_of(row, name), picture, references, self._columns.split_of(row))


READERS.register(
    Reader(
        name="csv",
        factory=read,
        help="a table with a header; columns are known by name or named",
        keys=columns.KEYS,
        layouts=(
            (
                "a table with a header, a picture a row or a caption a row (CSV, semicolons, tabs, bars)",
                "`data.csv`, `csv:captions.txt?images=Images`",
            ),
            ("Flickr30k as a table (`results.csv`)", "`csv:results.csv?images=flickr30k_images`"),
        ),
        suffixes=(".csv", ".tsv"),
    )
)
