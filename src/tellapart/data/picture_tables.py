"""Rows of tables in several parts (files or splits) with the same columns, one picture per row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tellapart.data.columns import Columns
from tellapart.data.dataset import Skipped
from tellapart.data.options import Options
from tellapart.data.picture_cells import PictureLocator
from tellapart.data.pictures import StoredPicture
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowPosition, stream_items
from tellapart.types import Item

PART_STRIDE = 1 << 40  # position = part · PART_STRIDE + row
TEXT_ROWS = 1024  # rows per batch without pictures
LOOKED_AT = 2000  # rows used to infer the naming scheme of downloaded files


class PictureTables:
    """Rows of several parts, as a `tellapart.data.row_index.RowSource`.

    packed: whether the parts contain the pictures themselves, rather than their paths.
    splits: the split of each part, for tables without a split column; "" if it is unknown.
    """

    def __init__(self, name: str, columns: Columns, folder: Path, splits: Sequence[str], *, packed: bool) -> None:
        self.name, self.columns, self.folder, self.packed = name, columns, folder, packed
        self._splits, self._where = splits, PictureLocator(folder)
        self.text_columns = tuple(dict.fromkeys([*columns.texts(), *(() if packed else (columns.image,))]))

    @abstractmethod
    def contents(self, part: int, missing: Skipped) -> Iterator[dict[str, Any]]:
        """Yields the text columns of a part's rows. Adds a damaged part to ``missing``, or raises `UsageError`."""

    @abstractmethod
    def content(self, part: int, row: int) -> dict[str, Any]:
        """Returns the text columns of one row."""

    @abstractmethod
    def picture(self, part: int, row: int) -> tuple[StoredPicture, str]:
        """Returns the picture that a row contains, and its default id."""

    @abstractmethod
    def where(self, part: int, row: int) -> str:
        """Returns the location of a row, for messages."""

    def items(self, options: Options) -> tuple[Sequence[Item], Skipped]:
        """Returns the items, ordered by part and row. Infers the naming scheme of downloads from the first rows."""
        if not self.packed:
            some = islice(self._rows(Skipped()), LOOKED_AT)
            self._where.learn((content[self.columns.image], place[1] - 1) for place, content in some)
        return stream_items(self, options, merge=not self.packed)

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """See `RowSource`."""
        for place, content in self._rows(missing):
            try:
                item = self._item(place, content)
            except RowError as error:
                missing.add(error.where, error.reason)
                continue
            yield place, item

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """See `RowSource`."""
        for place in places:
            yield self._item(place, self.content(*divmod(place[0], PART_STRIDE)))

    def _rows(self, missing: Skipped) -> Iterator[tuple[RowPosition, dict[str, Any]]]:
        number = 0
        for part in range(len(self._splits)):
            for row, content in enumerate(self.contents(part, missing)):
                number += 1
                yield (part * PART_STRIDE + row, number), content

    def _item(self, place: RowPosition, content: dict[str, Any]) -> Item:
        part, row = divmod(place[0], PART_STRIDE)
        where, columns = self.where(part, row), self.columns
        if self.packed:
            picture, name = self.picture(part, row)
        else:
            picture, name = self._where.picture(content[columns.image], place[1] - 1, where)
        return Item(
            columns.id_of(content, name),
            picture,
            columns.references(content, where),
            columns.split_of(content, self._splits[part]),
        )
