"""Indexes the rows of a file in memory: their positions, which of them belong to one item, and duplicate ids."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator

import numpy as np

from tellapart.data.text_files import utf8_bytes

RowPosition = tuple[int, int]  # position of a row (in bytes, or by file and row), and its number, counting from 1


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
