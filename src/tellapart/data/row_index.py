"""Random access to the rows of tables and other files, in any format, by position.

Items are created on access, so a million rows need no more memory than a thousand. A `RowSource` reads its file once
from end to end, and later any row by its position. An index of all rows (their positions, which rows share a picture,
duplicate ids) is kept in an unnamed file on disk and takes 24 bytes per row.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import IO, Any, Protocol, overload

import numpy as np

from tellapart.data.dataset import OnDemand, Skipped
from tellapart.data.listed_pictures import check_unique_ids, has_file
from tellapart.data.selection import Options, check_splits
from tellapart.data.text_files import utf8_bytes
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.progress import track

RowPosition = tuple[int, int]  # position of a row (in bytes, or by file and row), and its number, counting from 1
RECORD = struct.Struct(">QQQ")
RECORDS_PER_CHUNK = 1 << 16  # records processed at a time


class RowSource(Protocol):
    """One or more files of rows."""

    name: str

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """Yields every row once, in order. Adds rows without a picture to ``missing``. Raises `UsageError` for bad
        rows.
        """
        ...

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """Yields the rows at these positions, in this order; fast if they are in ascending order."""
        ...


def stream_items(source: RowSource, options: Options, *, merge: bool) -> tuple[Sequence[Item], Skipped]:
    """Returns the items of a source in row order, restricted to the requested splits and to existing pictures.

    merge: whether to merge all rows with the same id into one item with all their captions; otherwise, duplicate ids
    raise `UsageError`. Without merging, reading stops at ``limit=``, and the rows after it are not checked.
    """
    missing, index = Skipped(), RowIndex.open()
    splits: set[str] = set()
    enough = 0 if merge or options.text("part") else options.integer("limit", 0, least=1)
    for place, item in track(source.scan(missing), label=f"reading {source.name}"):
        splits.add(item.split)
        if (not options.splits or item.split in options.splits) and has_file(item, missing):
            index.add(item.id, place)
        if enough and len(index) >= enough:
            break
    check_splits(splits, options)
    index.close()
    rows = LazyItems(source, index, range(len(index)))
    if not merge:
        check_unique_ids(rows.doubles(), source.name)
    return rows, missing


class LazyItems(OnDemand):
    """Items of a source, selected by their numbers in its index."""

    def __init__(self, source: RowSource, index: RowIndex, order: Sequence[int]) -> None:
        self._source, self._index, self._order = source, index, order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Item]:
        return self._items(self._order)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> LazyItems: ...
    def __getitem__(self, index: int | slice) -> Item | LazyItems:
        if isinstance(index, slice):
            return LazyItems(self._source, self._index, self._order[index])
        return next(self._items([self._order[index]]))

    def subset(self, indices: Iterable[int]) -> LazyItems:
        """Returns the items at these indices, in this order. Takes eight bytes per item."""
        return LazyItems(self._source, self._index, array("Q", (self._order[index] for index in indices)))

    def doubles(self) -> Iterator[Item]:
        """Yields every row of the items that have several rows."""
        return self._source.read(place for n in self._index.doubles() for place in self._index.places(n))

    def _items(self, numbers: Sequence[int]) -> Iterator[Item]:
        rows = self._source.read(place for number in numbers for place in self._index.places(number))
        for number in numbers:
            yield self._merged(list(islice(rows, self._index.count(number))))

    def _merged(self, rows: list[Item]) -> Item:
        first = rows[0]
        for other in rows[1:]:
            if other.picture.name != first.picture.name:
                raise UsageError(
                    f"{self._source.name}: {first.picture.name} and {other.picture.name} have the "
                    f"same id {first.id!r}; ids must be unique"
                )
        captions = [caption for row in rows for caption in row.references]
        return first if len(rows) == 1 else replace(first, references=tuple(captions))


class RowIndex:
    """An index on disk from items to their rows: records of three 64-bit numbers.

    Records are written as (hash of the id, position, row number). Sorting groups the rows of one id. Then the position
    of the id's first row replaces the hash, and sorting again puts the items in file order. The probability that any
    two of a million ids share a hash is 3e-8.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rows = 0
        self._records: Any = None  # rows × 3, big-endian, so that records sort as byte strings
        self._starts: Any = None  # position of each item's first record; None if every record is an item

    @classmethod
    def open(cls) -> RowIndex:
        """Creates an empty index in an unnamed file."""
        return cls(tempfile.TemporaryFile())  # stays open as long as the index exists

    def add(self, id_: str, place: RowPosition) -> None:
        """Adds one row."""
        digest = hashlib.blake2b(utf8_bytes(id_), digest_size=8).digest()
        self._file.write(RECORD.pack(int.from_bytes(digest), *place))
        self._rows += 1

    def close(self) -> None:
        """Ends the adding of rows; items can be requested from now on."""
        self._file.flush()
        if not self._rows:
            return
        self._sort()
        found = sum(int(first.sum()) for first in self._give_first_places())
        self._sort()
        if found < self._rows:
            self._note_starts()

    def __len__(self) -> int:
        """Returns the number of items, or of rows while rows are still being added."""
        return self._rows if self._starts is None else len(self._starts)

    def count(self, number: int) -> int:
        """Returns the number of rows of an item."""
        return self._span(number)[1] - self._span(number)[0]

    def places(self, number: int) -> Iterator[RowPosition]:
        """Yields the rows of an item."""
        for row in range(*self._span(number)):
            _, place, row_number = self._records[row]
            yield int(place), int(row_number)

    def doubles(self) -> Iterator[int]:
        """Yields the numbers of the items that have several rows."""
        return (number for number in range(0 if self._starts is None else len(self)) if self.count(number) > 1)

    def _span(self, number: int) -> tuple[int, int]:
        if self._starts is None:
            return number, number + 1
        end = self._starts[number + 1] if number + 1 < len(self._starts) else self._rows
        return int(self._starts[number]), int(end)

    def _sort(self) -> None:
        mapped = np.memmap(self._file, dtype=f"S{RECORD.size}", mode="r+", shape=(self._rows,))
        mapped.sort()  # in place: the pages belong to the file, not to this process's memory
        self._records = mapped.view(">u8").reshape(-1, 3)

    def _give_first_places(self) -> Iterator[Any]:
        """Replaces each hash with the position of its first row; yields, in chunks, which records are the first."""
        last_hash, last_place = None, 0
        for start in range(0, self._rows, RECORDS_PER_CHUNK):
            chunk = self._records[start : start + RECORDS_PER_CHUNK]
            hashes = chunk[:, 0].astype(np.uint64)
            first = np.append(last_hash is None or hashes[0] != last_hash, hashes[1:] != hashes[:-1])
            run = np.maximum.accumulate(np.where(first, np.arange(len(first)), -1))
            places = np.where(run < 0, np.uint64(last_place), chunk[:, 1].astype(np.uint64)[run])
            last_hash, last_place = hashes[-1], places[-1]
            chunk[:, 0] = places
            yield first

    def _note_starts(self) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (the map keeps it)
        for start in range(0, self._rows, RECORDS_PER_CHUNK):
            chunk = self._records[start : start + RECORDS_PER_CHUNK]
            (np.flatnonzero(chunk[:, 0] == chunk[:, 1]) + start).astype(np.uint64).tofile(file)
        file.flush()
        self._starts = np.memmap(file, dtype=np.uint64, mode="r")
