"""Encodes the rows that are missing from the feature store. Opens each file at most once, and
decodes it only if needed.

If two processes encode the same pictures concurrently, both do the work, and the first row is kept.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, TellapartError
from tellapart.features.file_signatures import Signature, file_identity, settled
from tellapart.features.packed_rows import dtype_name, row_bytes, smallest_dtype
from tellapart.features.row_makers import RowMaker
from tellapart.features.rows import RowStore
from tellapart.types import Item
from tellapart.utils.blocks import blocks_of
from tellapart.utils.messages import detail, say
from tellapart.utils.progress import Progress

BATCH_SIZE = 64
WINDOW = 512  # number of items whose keys are looked up at once
# Rows are flushed together, because a flush takes as long as encoding several pictures. A process that is killed loses
# at most this much work.
APPEND_SECONDS = 2.0
APPEND_BYTES = 64 << 20
WAITING_BYTES = 256 << 20  # maximum size of the pictures that have been read but not yet encoded
WORTH_TELLING = 1e9  # number of bytes above which the message about storage is printed


def fill(
    store: RowStore, maker: RowMaker, items: Sequence[Item], batch_size: int = BATCH_SIZE, progress: bool = False
) -> tuple[list[str | None], list[tuple[Item, PictureError]]]:
    """Adds the rows of ``items`` to the store. Returns their keys (None for unreadable pictures) and the errors."""
    filling = _Filling(store, maker, len(items), batch_size)
    with Progress(len(items), f"encoding ({maker.label[:24]})", enabled=progress) as shown:
        for window in blocks_of(items, WINDOW):
            filling.add(window, shown)
        filling.flush()
    keys: list[str | None] = []
    errors = []
    for item, known in zip(items, filling.keys, strict=True):
        error = known if isinstance(known, PictureError) else filling.unreadable.get(known)
        keys.append(None if error is not None else str(known))
        if error is not None:
            errors.append((item, error))
    return keys, errors


class _Filling:
    """Adds rows to the store.

    ``keys``: the row key of each item so far, or why it cannot be read. ``unreadable``: errors of pictures that could
    be read but not decoded, by row key.
    """

    def __init__(self, store: RowStore, maker: RowMaker, count: int, batch_size: int) -> None:
        self._store, self._maker, self._count, self._batch_size = store, maker, count, batch_size
        self._waiting: dict[str, Any] = {}  # pictures to encode, by row key
        self._encoded: dict[str, np.ndarray] = {}  # rows that are not yet on disk
        self._appended = time.monotonic()
        self._told = False
        self.keys: list[str | PictureError] = []
        self.unreadable: dict[str, PictureError] = {}

    def add(self, items: Sequence[Item], shown: Progress) -> None:
        """Encodes the missing rows of the next items."""
        files: dict[int, tuple[str, Signature]] = {}
        for place, item in enumerate(items):
            if isinstance(item.picture, StoredPicture):
                with contextlib.suppress(PictureError):  # reading the picture raises the same error again
                    files[place] = file_identity(item.picture)
        by_address = self._store.known_files(dict(files.values()))
        contents = [
            by_address.get(files[place][0]) if place in files
            else None if isinstance(item.picture, StoredPicture) else item.picture.key()
            for place, item in enumerate(items)
        ]  # fmt: skip
        keys = [self._maker.key(item.picture, key) for item, key in zip(items, contents, strict=True) if key]
        known = self._store.known_rows(self._maker.label, keys)
        hashed = []
        for place, (item, content) in enumerate(zip(items, contents, strict=True)):
            picture: Any = item.picture
            try:
                if content is None:
                    picture = picture.read()  # so that the same bytes are hashed and decoded
                    content = str(picture.key())
                    if place in files and settled(files[place][1]):
                        hashed.append((*files[place], content))
            except PictureError as error:
                self.keys.append(error)
            else:
                self.keys.append(key := self._maker.key(item.picture, content))
                if key not in known and key not in self._encoded and key not in self.unreadable:
                    self._wait(key, picture)
            shown.advance()
        self._store.remember_files(hashed)

    def _wait(self, key: str, picture: Any) -> None:
        """Schedules a row. Encodes the scheduled rows once they fill a batch."""
        self._waiting.setdefault(key, picture)
        read = sum(len(getattr(one, "data", b"")) for one in self._waiting.values())
        if len(self._waiting) * self._maker.frames >= self._batch_size or read > WAITING_BYTES:
            self._encode()
            encoded = sum(row.nbytes for row in self._encoded.values())
            if time.monotonic() - self._appended > APPEND_SECONDS or encoded > APPEND_BYTES:
                self.flush()

    def _encode(self) -> None:
        """Computes the scheduled rows, except those that are stored: another process may have added them."""
        waiting, self._waiting = self._waiting, {}
        known, prepared = self._store.known_rows(self._maker.label, list(waiting)), dict[str, Any]()
        for key, picture in waiting.items():
            if key not in known:
                try:
                    prepared[key] = self._maker.of(picture)
                except PictureError as error:
                    self.unreadable[key] = error
        if not prepared:
            return
        rows = self._maker.rows(list(prepared.values()))
        if len(rows) != len(prepared):
            raise TellapartError(f"{self._maker.label} returned {len(rows)} rows for {len(prepared)} pictures")
        for key, row in zip(prepared, rows, strict=True):
            if not np.isfinite(row).all():
                name = waiting[key].name
                raise TellapartError(f"{self._maker.label}: the encoder returned NaN or infinity for {name}")
            self._encoded[key] = row
        if not self._told:
            self._tell(np.asarray(rows))

    def flush(self) -> None:
        """Encodes the scheduled rows and appends all encoded rows to the store."""
        if self._waiting:
            self._encode()
        if self._encoded:
            rows = np.stack(list(self._encoded.values()))
            self._store.append(self._maker.label, list(self._encoded), rows, self._maker.precision, self._maker.name)
            self._encoded.clear()
        self._appended = time.monotonic()

    def _tell(self, rows: np.ndarray) -> None:
        """Prints how much will be stored. Called after the first batch, once the shape of a row is known."""
        self._told = True
        store, table = self._store, self._store.table(self._maker.label)
        dtype = smallest_dtype(rows, self._maker.precision) if table is None else table.dtype
        left = self._count - len(self.keys) + len(rows)
        size, limit = left * row_bytes(dtype, rows.shape[1:]), store.limit_bytes
        used, free = sum(use.bytes for use in store.usage()), shutil.disk_usage(store.folder).free
        line = (
            f"{store.folder}: at most {left:,} pictures × {'×'.join(map(str, rows.shape[1:])) or '1'} "
            f"{dtype_name(dtype)} = {size / 1e9:,.1f} GB to store; {used / 1e9:,.1f} of {limit / 1e9:g} GB are used, "
            f"{free / 1e9:,.1f} GB of disk are free"
        )
        if short := size > min(limit, free + used):
            line += '; if that is not enough, raise TELLAPART_CACHE_GB, or disable storing with features = "off"'
        (say if short or size > WORTH_TELLING else detail)(line)
