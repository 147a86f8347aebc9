"""Provides random access by position to the rows of tables and other files, whatever their format.

Items are created on access, so their texts take no memory. A `RowSource` first reads its file from end to end, and
later reads any row by its position. An index of all rows (their positions, which rows share a picture, duplicate ids)
is kept in memory, 24 bytes per row.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from tellapart.data.dataset import Items, ReadItems
from tellapart.data.equal_ids import check_unique_ids, merged
from tellapart.data.listed_pictures import has_file
from tellapart.data.options import Options
from tellapart.data.row_errors import RowError
from tellapart.data.selection import check_splits
from tellapart.data.skipped import Skipped
from tellapart.data.text_files import utf8_bytes
from tellapart.types import Item
from tellapart.utils.progress import track

RowPosition = tuple[int, int]  # position of a row (in bytes, or by file and row), and its number, counting from 1


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


class RowIndex:
    """An in-memory index from items to their rows (24 bytes per row). Ids are compared by a 64-bit hash.

    The probability that any two of a million ids share a hash is 3e-8.
    """

    def __init__(self) -> None:
        self._added = array("Q")  # hash of the id, position and number of each row
        self._place_N2 = np.zeros((0, 2), np.uint64)  # rows, item by item, in the order of each item's first row
        self._starts = np.zeros(1, np.int64)  # first row of each item, and the end

    def add(self, id_: str, place: RowPosition) -> None:
        """Adds one row. Rows must be added in the order of their positions."""
        digest = hashlib.blake2b(utf8_bytes(id_), digest_size=8).digest()
        self._added.extend((int.from_bytes(digest), *place))

    def close(self) -> None:
        """Builds the index. Must be called after all rows have been added and before items are requested."""
        row_N3 = np.frombuffer(self._added, np.uint64).reshape(-1, 3)
        _, first_M, item_N, count_M = np.unique(
            row_N3[:, 0], return_index=True, return_inverse=True, return_counts=True
        )
        order_M = np.argsort(first_M)
        self._place_N2 = row_N3[np.argsort(first_M[item_N], kind="stable"), 1:]
        self._starts = np.append(0, np.cumsum(count_M[order_M]))
        self._added = array("Q")

    def __len__(self) -> int:
        """Returns the number of items."""
        return len(self._starts) - 1

    def places(self, number: int) -> Iterator[RowPosition]:
        """Yields the rows of an item."""
        for place, row_number in self._place_N2[self._starts[number] : self._starts[number + 1]]:
            yield int(place), int(row_number)

    def doubles(self) -> list[int]:
        """Returns the numbers of the items that have several rows."""
        return [int(number) for number in np.flatnonzero(np.diff(self._starts) > 1)]
