"""Items of a file of rows, created on access: a million rows need no more memory than a thousand.

A `RowSource` reads its file once from end to end, and later any of its rows by its place. What has to be known of all
rows (where each is, which of them speak of the same picture, whether an id is there twice) is kept in an unnamed file
on disk, 24 bytes a row.
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

from tellapart.data.base import Options, check_splits, check_unique_ids, has_file, utf8_bytes
from tellapart.data.dataset import OnDemand, Skipped
from tellapart.errors import UsageError
from tellapart.progress import track
from tellapart.types import Item

RowPosition = tuple[int, int]  # where a row is (in bytes, or by file and row), and its number, from 1
RECORD = struct.Struct(">QQQ")
CHUNK = 1 << 16  # records looked at together


class RowSource(Protocol):
    """A file of rows, or several."""

    name: str

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """Every row once, places ascending. Adds rows without a picture to ``missing``. Raises `UsageError`."""
        ...

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """The rows at these places, in this order; quick where they ascend."""
        ...


def stream_items(source: RowSource, options: Options, *, merge: bool) -> tuple[Sequence[Item], Skipped]:
    """The items of a source: those of the splits asked for whose picture is there, in the order of the rows.

    merge: rows of one id are one item with the captions of all, wherever they stand; else they are a `UsageError`.
    Where rows stand for themselves, ``limit=`` ends the reading early, and the rows after it are not checked.
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
    """Some of the items of a source, by their numbers in its index."""

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
        """The items at these places, in this order: eight bytes each."""
        return LazyItems(self._source, self._index, array("Q", (self._order[index] for index in indices)))

    def doubles(self) -> Iterator[Item]:
        """Every row of the items that have several."""
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
                    f"{self._source.name}: the id {first.id!r} stands for {first.picture.name} and for "
                    f"{other.picture.name}; give every picture its own"
                )
        captions = [caption for row in rows for caption in row.references]
        return first if len(rows) == 1 else replace(first, references=tuple(captions))


class RowIndex:
    """Which rows make which item, in a file on disk: records of three numbers of 64 bits.

    Written: (hash of the id, place, row number). Sorted, the rows of one id stand together; then the hash gives way
    to the place of the id's first row, and sorted again the items stand in the order of the file. Two ids out of a
    million share a hash with a chance of 3e-8.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rows = 0
        self._records: Any = None  # rows × 3, big-endian: so that records sort as strings of bytes
        self._starts: Any = None  # where each item's first record is; None where every record is an item

    @classmethod
    def open(cls) -> RowIndex:
        """An empty one, in an unnamed file."""
        return cls(tempfile.TemporaryFile())  # open for as long as this is there

    def add(self, id_: str, place: RowPosition) -> None:
        """One row."""
        digest = hashlib.blake2b(utf8_bytes(id_), digest_size=8).digest()
        self._file.write(RECORD.pack(int.from_bytes(digest), *place))
        self._rows += 1

    def close(self) -> None:
        """All rows are there: from now on items can be asked for."""
        self._file.flush()
        if not self._rows:
            return
        self._sort()
        found = sum(int(first.sum()) for first in self._give_first_places())
        self._sort()
        if found < self._rows:
            self._note_starts()

    def __len__(self) -> int:
        """Items; rows while they are still added."""
        return self._rows if self._starts is None else len(self._starts)

    def count(self, number: int) -> int:
        """How many rows this item has."""
        return self._span(number)[1] - self._span(number)[0]

    def places(self, number: int) -> Iterator[RowPosition]:
        """The rows of this item."""
        for row in range(*self._span(number)):
            _, place, row_number = self._records[row]
            yield int(place), int(row_number)

    def doubles(self) -> Iterator[int]:
        """The numbers of the items that have several rows."""
        return (number for number in range(0 if self._starts is None else len(self)) if self.count(number) > 1)

    def _span(self, number: int) -> tuple[int, int]:
        if self._starts is None:
            return number, number + 1
        end = self._starts[number + 1] if number + 1 < len(self._starts) else self._rows
        return int(self._starts[number]), int(end)

    def _sort(self) -> None:
        import numpy as np

        mapped = np.memmap(self._file, dtype=f"S{RECORD.size}", mode="r+", shape=(self._rows,))
        mapped.sort()  # in place: the pages belong to the file, not to this process's memory
        self._records = mapped.view(">u8").reshape(-1, 3)

    def _give_first_places(self) -> Iterator[Any]:
        """In place of each hash the place of its first row; yields, in chunks, which records are the first."""
        import numpy as np

        last_hash, last_place = None, 0
        for start in range(0, self._rows, CHUNK):
            chunk = self._records[start : start + CHUNK]
            hashes = chunk[:, 0].astype(np.uint64)
            first = np.append(last_hash is None or hashes[0] != last_hash, hashes[1:] != hashes[:-1])
            run = np.maximum.accumulate(np.where(first, np.arange(len(first)), -1))
            places = np.where(run < 0, np.uint64(last_place), chunk[:, 1].astype(np.uint64)[run])
            last_hash, last_place = hashes[-1], places[-1]
            chunk[:, 0] = places
            yield first

    def _note_starts(self) -> None:
        import numpy as np

        file = tempfile.TemporaryFile()  # noqa: SIM115 (the map keeps it)
        for start in range(0, self._rows, CHUNK):
            chunk = self._records[start : start + CHUNK]
            (np.flatnonzero(chunk[:, 0] == chunk[:, 1]) + start).astype(np.uint64).tofile(file)
        file.flush()
        self._starts = np.memmap(file, dtype=np.uint64, mode="r")
