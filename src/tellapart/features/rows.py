"""Rows of numbers on disk, looked up by a picture's content key.

    FOLDER/features/index.sqlite   the tables, the row of each key, and the key of each file
    FOLDER/features/NAME.bin       the concatenated rows of a table

A row becomes valid in two steps: its bytes are flushed, then the index lists it. Both happen under SQLite's write lock;
there is no other lock. A killed process can leave bytes after the last valid row, which the next process overwrites.
The index is opened for each transaction, with a rollback journal (not WAL), which works on network file systems too.
Mapped rows can be read even after their file is removed.

Every row has a checksum, which a process verifies on its first access to the row. A damaged row is dropped, counted
(`RowStore.damaged`), and computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellapart.errors import TellapartError
from tellapart.features.cache_errors import cache_errors
from tellapart.features.file_signatures import Signature
from tellapart.features.packed_rows import BF16, dtype_name, pack, row_bytes, smallest_dtype, unpack
from tellapart.features.stored_rows import StoredRows

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, title TEXT NOT NULL, dtype TEXT NOT NULL,
                     shape TEXT NOT NULL, count INTEGER NOT NULL, used REAL NOT NULL);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER NOT NULL,
                   PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""
GIVEN = "IN (SELECT value FROM json_each(?))"  # SQL for "among the values in a JSON list"


@dataclass(frozen=True)
class TableUse:
    """One line printed by ``tellapart cache``. ``used``: time of last use, in seconds since 1970. ``name``: the model's
    name.
    """

    name: str
    label: str
    pictures: int
    bytes: int
    used: float


@dataclass(frozen=True)
class Table:
    """Rows of one shape and dtype in one file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    count: int

    @property
    def bytes(self) -> int:
        """The size of all rows on disk."""
        return self.count * row_bytes(self.dtype, self.shape)

    def mapped(self) -> np.ndarray | None:
        """Maps the rows as stored on disk, copy-on-write. Returns None if the file was lost or truncated."""
        if not 0 < self.bytes <= _size(self.file):
            return None
        disk_dtype = np.dtype(np.uint16) if self.dtype == BF16 else np.dtype(self.dtype)
        return np.memmap(self.file, disk_dtype, mode="c", shape=(self.count, *self.shape))


class RowStore:
    """Tables of rows in ``folder``. If they exceed ``limit_bytes``, drops the least recently used tables.

    Never drops the table that is being written, regardless of its size.
    """

    def __init__(self, folder: Path, limit_bytes: float) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self.damaged: dict[str, int] = {}  # number of damaged rows that this process has dropped, by label
        self._path = folder / "features" / "index.sqlite"
        self._checked: dict[Path, set[int]] = {}  # maps files to rows that this process has verified

    def known_rows(self, label: str, keys: Sequence[str]) -> dict[str, int]:
        """Returns a mapping from each key that is in the table to its row number."""
        return self._find(label, keys)[0]

    def read(self, label: str, keys: Sequence[str]) -> StoredRows | None:
        """Returns the rows of ``keys``, in the same order. Returns None if a row is missing."""
        known, mapped, dtype = self._find(label, keys)
        if mapped is None or any(key not in known for key in keys):
            return None
        return StoredRows(mapped, np.fromiter((known[key] for key in keys), np.int64, len(keys)), dtype)

    def _find(self, label: str, keys: Sequence[str]) -> tuple[dict[str, int], np.ndarray | None, str]:
        """Returns the row numbers of the keys, the mapped table (None if it is missing), and its dtype.

        Drops damaged rows, except those that another process has replaced.
        """
        known: dict[str, int] = {}
        with self._transaction("DEFERRED") as index:  # so that the table is not dropped between lookup and mapping
            if (table := self._table(index, label)) is None:
                return known, None, ""
            query = f"SELECT key, row, sum FROM rows WHERE name = ? AND key {GIVEN}"
            listed = index.execute(query, (table.file.stem, json.dumps(keys))).fetchall()
            checked = self._checked.setdefault(table.file, set())
            if (mapped := table.mapped()) is not None:
                known = {key: row for key, row, value in listed if row in checked or zlib.crc32(mapped[row]) == value}
            checked.update(known.values())
        if damaged := [(table.file.stem, key, row) for key, row, _ in listed if key not in known]:
            with self._transaction("IMMEDIATE") as index:
                index.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND row = ?", damaged)
            self._checked.pop(table.file, None)
            self.damaged[label] = self.damaged.get(label, 0) + len(damaged)
        return known, mapped, table.dtype

    def table(self, label: str) -> Table | None:
        """Returns a table on disk, or None if there is no such table."""
        with self._transaction("DEFERRED") as index:
            return self._table(index, label)

    def append(
        self, label: str, keys: Sequence[str], rows: np.ndarray, precision: str = "fp32", title: str = ""
    ) -> None:
        """Adds rows, except those whose keys another process has added in the meantime.

        precision: the model's precision; a new table is stored in half precision if that is lossless.
        title: the table's name in `usage`.

        Raises `TellapartError` if the disk is full (partly written rows are not listed), or if the rows have a
        different shape from the table.
        """
        with self._transaction("IMMEDIATE") as index:
            table = self._table(index, label)
            if table is not None and table.mapped() is None:
                self._drop(index, table.file)  # appending to a lost file must not make its old rows valid again
                table = None
            if table is None:
                table = Table(self._file(label), smallest_dtype(rows, precision), rows.shape[1:], 0)
                values = (table.file.stem, label, title, table.dtype, " ".join(map(str, table.shape)), 0, time.time())
                index.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            packed, name = _packed(rows, table, label), table.file.stem
            query = f"SELECT key FROM rows WHERE name = ? AND key {GIVEN}"
            known = {key for (key,) in index.execute(query, (name, json.dumps(keys)))}
            fresh = {key: place for place, key in enumerate(keys) if key not in known}
            new = packed[list(fresh.values())]
            self._make_room(index, table.file, new.nbytes)
            _write_rows(table.file, table.bytes, new)
            numbered = [(name, key, table.count + n, zlib.crc32(new[n])) for n, key in enumerate(fresh)]
            index.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", numbered)
            index.execute("UPDATE tables SET count = count + ? WHERE name = ?", (len(fresh), name))

    def touch(self, label: str) -> None:
        """Marks a table as used now, and drops the least recently used tables while the store exceeds its limit."""
        with self._transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE label = ?", (time.time(), label))
            self._make_room(index, self._file(label), 0)

    def known_files(self, signatures: Mapping[str, Signature]) -> dict[str, str]:
        """Returns the content keys of files that were hashed before and have the same signature as then."""
        with self._transaction("DEFERRED") as index:
            listed = index.execute(f"SELECT * FROM files WHERE path {GIVEN}", (json.dumps(list(signatures)),))
            return {path: key for path, *signature, key in listed if tuple(signature) == signatures[path]}

    def remember_files(self, files: Iterable[tuple[str, Signature, str]]) -> None:
        """Records path, signature and content key of each file for `known_files`."""
        if rows := [(path, *signature, key) for path, signature, key in files]:
            with self._transaction("IMMEDIATE") as index:
                index.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def empty(self) -> int:
        """Drops all tables, all file records and, if damaged, the index itself. Returns the number of bytes freed."""
        files = list(self._path.parent.glob("*.bin"))
        freed = sum(map(_size, files))
        try:
            if self._path.parent.is_dir():
                with self._transaction("EXCLUSIVE") as index:
                    for file in files:
                        self._drop(index, file)
                    for table in ("tables", "rows", "files"):
                        index.execute(f"DELETE FROM {table}")
        except TellapartError:
            for file in [*files, *self._path.parent.glob("index.sqlite*")]:
                file.unlink(missing_ok=True)
        return freed

    def remove(self, label: str) -> int:
        """Drops one table. Returns the number of bytes freed."""
        with self._transaction("EXCLUSIVE") as index:
            freed = _size(file := self._file(label))
            self._drop(index, file)
        return freed

    def usage(self) -> list[TableUse]:
        """Returns the contents of the cache, most recently used first."""
        if not self._path.is_file():
            return []
        with self._transaction("DEFERRED") as index:
            rows = index.execute(
                "SELECT title, label, used, (SELECT COUNT(*) FROM rows WHERE rows.name = tables.name) FROM tables "
                "ORDER BY used DESC"
            ).fetchall()
        return [TableUse(title, label, count, _size(self._file(label)), used) for title, label, used, count in rows]

    def _file(self, label: str) -> Path:
        return self._path.with_name(f"{hashlib.blake2b(label.encode(), digest_size=10).hexdigest()}.bin")

    def _table(self, index: sqlite3.Connection, label: str) -> Table | None:
        row = index.execute("SELECT dtype, shape, count FROM tables WHERE label = ?", (label,)).fetchone()
        if row is None:
            return None
        dtype, shape, count = row
        return Table(self._file(label), dtype, tuple(map(int, shape.split())), count)

    def _make_room(self, index: sqlite3.Connection, keep: Path, more: int) -> None:
        """Drops tables, least recently used first, until there is room for ``more`` bytes."""
        labels = index.execute("SELECT label FROM tables ORDER BY used").fetchall()
        sizes = {file: _size(file) for (label,) in labels for file in [self._file(label)]}
        over = sum(sizes.values()) + more - self.limit_bytes
        for file, size in sizes.items():
            if over > 0 and file != keep:
                over -= size
                self._drop(index, file)

    def _drop(self, index: sqlite3.Connection, file: Path) -> None:
        # Remove the file first: if the process is killed now, the index lists a missing file, which `mapped` detects.
        file.unlink(missing_ok=True)
        for which in ("rows", "tables"):
            index.execute(f"DELETE FROM {which} WHERE name = ?", (file.stem,))
        self._checked.pop(file, None)

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """Opens a connection for one transaction.

        No connection stays open, so forks, threads and ``--empty`` are safe.
        """
        with cache_errors(self.folder):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as index:
                _prepare(index, self.folder)
                index.execute(f"BEGIN {kind}")
                try:
                    yield index
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # SQLite may already have rolled back (full disk)
                        index.execute("ROLLBACK")
                    raise
                index.execute("COMMIT")


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _packed(rows: np.ndarray, table: Table, label: str) -> np.ndarray:
    """Converts rows to the table's dtype. Raises `TellapartError` if their shape or dtype does not fit the table."""
    fits = rows.shape[1:] == table.shape
    if fits and rows.dtype.str != table.dtype:  # half precision must be lossless
        with np.errstate(over="ignore"):
            fits = rows.dtype == np.float32 and np.array_equal(unpack(pack(rows, table.dtype), table.dtype), rows)
    if not fits:
        raise TellapartError(
            f"{label}: features have shape {rows.shape[1:]} and type {rows.dtype}, but those in the cache with the "
            f"same fingerprint have {table.shape} and {dtype_name(table.dtype)}; run: tellapart cache --empty"
        )
    return pack(rows, table.dtype)


def _write_rows(file: Path, place: int, rows: np.ndarray) -> None:
    """Writes rows to a file at byte offset ``place`` and flushes them. If the disk is full, undoes a partial write."""
    file.touch(0o644)
    with file.open("r+b", buffering=0) as handle:
        try:
            left = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
            handle.seek(place)
            while left:
                left = left[handle.write(left) :]
            os.fsync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                handle.truncate(place)
            raise


def _prepare(index: sqlite3.Connection, folder: Path) -> None:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA_VERSION):
        raise TellapartError(
            f"{folder}: the cache was written by another version of tellapart; run: tellapart cache --empty"
        )
    if version == 0:
        index.execute("BEGIN EXCLUSIVE")
        if index.execute("PRAGMA user_version").fetchone() == (0,):  # another process may have created it first
            for statement in filter(str.strip, SCHEMA.split(";")):
                index.execute(statement)
            index.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        index.execute("COMMIT")
