"""Reads the rows of tables and other files in random order, whatever their format.

Items are created on access, so their texts take no memory. A `RowSource` first reads its file from end to end, and
later reads any row by its position in an index (`tellapart.data.row_index`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from tellapart.data.dataset import Items, ReadItems
from tellapart.data.equal_ids import check_unique_ids, merged
from tellapart.data.listed_pictures import has_file
from tellapart.data.options import Options
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowIndex, RowPosition
from tellapart.data.selection import check_splits
from tellapart.data.skipped import Skipped
from tellapart.types import Item
from tellapart.utils.progress import track


class RowSource(ABC):
    """One or more files of rows. ``name`` is used in messages."""

    name: str

    @abstractmethod
    def rows(self, missing: Skipped) -> Iterator[tuple[RowPosition, Any]]:
        """Yields every row once, in order. Adds damaged files to ``missing``, or raises `UsageError`."""

    @abstractmethod
    def rows_at(self, places: Iterable[RowPosition]) -> Iterator[Any]:
        """Yields the rows at these positions, in this order. Fastest if the positions are ascending."""

    @abstractmethod
    def item(self, row: Any, place: RowPosition) -> Item:
        """Returns a row's item. Raises `RowError` for a row to skip, and `UsageError` if the file is malformed."""

    def items(self, options: Options, *, merge: bool) -> ReadItems:
        """Returns the items in row order, restricted to the requested splits and to existing pictures.

        merge: whether to merge all rows with the same id into one item with all their captions; otherwise, duplicate
        ids raise `UsageError`. Without merging, reading stops at ``limit=``, and the rows after it are not checked.
        """
        missing, index, rows = Skipped(), RowIndex(), 0
        splits: set[str] = set()
        enough = 0 if merge or options.text("part") else options.integer("limit", 0, least=1)
        for place, row in track(self.rows(missing), label=f"reading {self.name}"):
            try:
                item = self.item(row, place)
            except RowError as error:
                missing.add(error.where, error.reason)
                continue
            splits.add(item.split)
            if (not options.splits or item.split in options.splits) and has_file(item, missing):
                index.add(item.id, place)
                rows += 1
            if rows and rows == enough:
                break
        check_splits(splits, options)
        index.close()
        if not merge:
            doubles = [place for number in index.doubles() for place in index.places(number)]
            check_unique_ids(map(self.item, self.rows_at(doubles), doubles), self.name)
        return IndexedItems(self, index, range(len(index))), missing


class IndexedItems(Items):
    """Items of a source, selected by their numbers in its index."""

    def __init__(self, source: RowSource, index: RowIndex, numbers: Sequence[int]) -> None:
        self._source, self._index, self._numbers = source, index, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def item_at(self, index: int) -> Item:
        """Returns one item."""
        return next(self._read([self._numbers[index]]))

    def __iter__(self) -> Iterator[Item]:
        return self._read(self._numbers)

    def subset(self, indices: Iterable[int]) -> Self:
        """Returns the items at these indices, in this order. Takes eight bytes per item."""
        return type(self)(self._source, self._index, array("Q", (self._numbers[index] for index in indices)))

    def _read(self, numbers: Sequence[int]) -> Iterator[Item]:
        rows = self._source.rows_at(place for number in numbers for place in self._index.places(number))
        for number in numbers:
            places = self._index.places(number)
            # The places come first: when they end, `zip` has not yet taken a row of the next item.
            items = [self._source.item(row, place) for place, row in zip(places, rows, strict=False)]
            yield merged(items, self._source.name)
