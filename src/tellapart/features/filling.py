"""Encodes the rows that are missing from the feature store. Opens each file at most once, and
decodes it only if needed.

If two processes encode the same pictures concurrently, both do the work, and the first row is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, TellapartError
from tellapart.features.packed_rows import row_bytes, smallest_dtype
from tellapart.features.row_makers import RowMaker
from tellapart.features.rows import RowStore
from tellapart.types import Item
from tellapart.utils.messages import detail, say

BATCH_SIZE = 64
TOWER_ROWS = 256  # number of a frozen encoder's rows in memory at once
WINDOW = 512  # number of items whose keys are looked up at once
# A file modified more recently than this may change again within the clock's resolution, and so seem unchanged.
SETTLED_NS = 2_000_000_000
# Rows are flushed together, because a flush takes as long as encoding several pictures. A process that is killed loses
# at most this much work.
APPEND_SECONDS = 2.0
APPEND_BYTES = 64 << 20
WAITING_BYTES = 256 << 20  # maximum size of the pictures that have been read but not yet encoded
WORTH_TELLING = 1e9  # number of bytes above which the message about storage is printed


@dataclass
class _Wanted:
    """A row to compute: its picture, and the indices of all items that show this picture."""

    picture: Any
    places: list[int] = field(default_factory=list)


class Filling:
    """Adds the rows of items to the store.

    ``keys``: the row key of each item; None if its picture cannot be read.
    """

    def __init__(self, rows: RowStore, maker: RowMaker, items: Sequence[Item], batch_size: int) -> None:
        self._rows, self._maker, self._items, self._batch_size = rows, maker, items, batch_size
        self._wanted: dict[str, _Wanted] = {}  # not yet encoded
        self._encoded: dict[str, np.ndarray] = {}  # maps row keys to rows that are not yet on disk
        self._appended = time.monotonic()
        self._hashed: list[tuple[str, tuple[int, int], str]] = []
        self._told = False
        self._seen = 0
        self.keys: list[str | None] = [None] * len(items)
        self._failed: dict[int, PictureError] = {}  # by item index
        self.errors: list[tuple[Item, PictureError]] = []  # in item order, set by `run`

    def run(self) -> Iterator[int]:
        """Processes all items. Yields the number of items finished since the last yield."""
        for start in range(0, len(self._items), WINDOW):
            yield from self._window(start)
        self._flush()
        self.errors = [(self._items[place], self._failed[place]) for place in sorted(self._failed)]

    def _window(self, start: int) -> Iterator[int]:
        """Processes the window of items that starts at ``start``."""
        items = self._items[start : start + WINDOW]
        signatures = self._signatures(items)
        known_keys = self._rows.known_files(dict(signatures.values()))
        keys = [known_keys.get(signatures[place][0]) if place in signatures else None for place in range(len(items))]
        keys = [
            key if key is not None or isinstance(item.picture, StoredPicture) else item.picture.key()
            for key, item in zip(keys, items, strict=True)
        ]
        known_rows = self._rows.known_rows(
            self._maker.label,
            [self._maker.key(item.picture, key) for item, key in zip(items, keys, strict=True) if key is not None],
        )
        for place, item in enumerate(items):
            self._seen = start + place + 1
            try:
                self._one(start + place, item, signatures.get(place), keys[place], known_rows)
            except PictureError as error:
                self._failed[start + place] = error
            yield 1
        self._rows.remember_files(self._hashed)
        self._hashed.clear()

    def _one(
        self, place: int, item: Item, file: tuple[str, tuple[int, int]] | None, key: str | None, known: dict[str, int]
    ) -> None:
        """Determines an item's row key and, if its row is missing, schedules the row for encoding."""
        picture: Any = item.picture
        new = key is None
        if key is None:
            picture = picture.read()  # so that the same bytes are hashed and decoded
            key = str(picture.key())
            if file is not None and time.time_ns() - file[1][1] > SETTLED_NS:
                self._hashed.append((*file, key))
        row_key = self._maker.key(item.picture, key)
        self.keys[place] = row_key
        if new:
            known |= self._rows.known_rows(self._maker.label, [row_key])
        if row_key in known or row_key in self._encoded:
            return
        if row_key in self._wanted:
            self._wanted[row_key].places.append(place)
            return
        self._wanted[row_key] = _Wanted(picture, [place])
        waiting = sum(len(getattr(one.picture, "data", b"")) for one in self._wanted.values())
        if len(self._wanted) * self._maker.frames >= self._batch_size or waiting > WAITING_BYTES:
            self._encode()
            if time.monotonic() - self._appended > APPEND_SECONDS or self._encoded_bytes() > APPEND_BYTES:
                self._flush()

    def _encode(self) -> None:
        """Computes the missing rows, except those that another process has stored in the meantime."""
        missing, self._wanted = self._wanted, {}
        for key in self._rows.known_rows(self._maker.label, list(missing)):
            del missing[key]
        prepared: dict[str, Any] = {}
        for key, one in missing.items():
            try:
                prepared[key] = self._maker.of(one.picture)
            except PictureError as error:
                for place in one.places:
                    self.keys[place] = None
                    self._failed[place] = error
        if not prepared:
            return
        rows = self._maker.rows(list(prepared.values()))
        if len(rows) != len(prepared):
            raise TellapartError(f"{self._maker.label} returned {len(rows)} rows for {len(prepared)} pictures")
        for key, row in zip(prepared, rows, strict=True):
            if not np.isfinite(row).all():
                name = self._items[missing[key].places[0]].picture.name
                raise TellapartError(f"{self._maker.label}: the encoder returned NaN or infinity for {name}")
            self._encoded[key] = row
        if not self._told:
            self._tell(np.asarray(rows))

    def _flush(self) -> None:
        """Encodes the missing rows and appends all encoded rows to the store."""
        if self._wanted:
            self._encode()
        if self._encoded:
            rows = np.stack(list(self._encoded.values()))
            self._rows.append(self._maker.label, list(self._encoded), rows, self._maker.precision, self._maker.name)
            self._encoded.clear()
        self._appended = time.monotonic()

    def _tell(self, rows: np.ndarray) -> None:
        """Prints how much will be stored. Called after the first batch, once the shape of a row is known."""
        self._told = True
        dtype = self._rows.dtype_of(self._maker.label) or smallest_dtype(rows, self._maker.precision)
        each = row_bytes(dtype, rows.shape[1:])
        left = len(self._items) - self._seen + len(rows)
        room = self._rows.room()
        shape = "×".join(map(str, rows.shape[1:])) or "1"
        kind = dtype if dtype == "bfloat16" else np.dtype(dtype).name
        line = (
            f"{self._rows.folder}: at most {left:,} pictures × {shape} {kind} = {left * each / 1e9:,.1f} GB to store; "
            f"{room.used / 1e9:,.1f} of {room.limit / 1e9:g} GB are used, {room.free / 1e9:,.1f} GB of disk are free"
        )
        short = left * each > min(room.limit, room.free + room.used)
        if short:
            line += '; if that is not enough, raise TELLAPART_CACHE_GB, or disable storing with features = "off"'
        (say if short or left * each > WORTH_TELLING else detail)(line)

    def _signatures(self, items: Sequence[Item]) -> dict[int, tuple[str, tuple[int, int]]]:
        """Maps indices in the window to (address, signature), for pictures that are existing files on disk."""
        signatures: dict[int, tuple[str, tuple[int, int]]] = {}
        for place, item in enumerate(items):
            if isinstance(item.picture, StoredPicture):
                try:
                    # Paths may not be valid text, but SQLite accepts only text, hence fsencode.
                    address = os.fsencode(item.picture.address()).decode("utf-8", "backslashreplace")
                    signatures[place] = (address, item.picture.signature())
                except PictureError:
                    continue  # reading the picture raises the same error again, which is then reported
        return signatures

    def _encoded_bytes(self) -> int:
        return sum(row.nbytes for row in self._encoded.values())
