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
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import TellapartError
from tellapart.features.cache_errors import cache_errors
from tellapart.features.packed_rows import BF16, pack, row_bytes, smallest_dtype, unpack
from tellapart.features.stored_rows import StoredRows
from tellapart.utils.blocks import blocks_of

KNOWN_ROWS = "SELECT key, row FROM rows WHERE name = ? AND key IN"
KEYS_PER_QUERY = 500  # number of parameters per query; old builds of SQLite allow at most 999
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, title TEXT NOT NULL, dtype TEXT NOT NULL,
                     shape TEXT NOT NULL, count INTEGER NOT NULL, used REAL NOT NULL);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER NOT NULL,
                   PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""


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
class Room:
    """Disk usage in bytes: the store's size, its limit, and the free space on its disk."""

    used: int
    limit: float
    free: int


@dataclass(frozen=True)
class Table:
    """Rows of one shape and dtype in one file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    file: Path

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.dtype, self.shape)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.file.stat().st_size if self.file.is_file() else 0

    def mapped(self) -> np.ndarray:
        """Maps the rows as stored on disk, copy-on-write."""
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
        self._checked: dict[str, set[int]] = {}  # maps table names to rows that this process has verified

    def known_rows(self, label: str, keys: Sequence[str]) -> dict[str, int]:
        """Returns a mapping from each key that is in the table to its row number."""
        with self._transaction("DEFERRED") as index:
            table = self._table(index, label)
            if table is None:
                return {}
            known = look_up(index, KNOWN_ROWS, keys, table.name)
            sound = self._intact(index, table, known)
        self._forget(label, known, sound)
        return sound

    def read(self, label: str, keys: Sequence[str]) -> StoredRows | None:
        """Returns the rows of ``keys``, in the same order. Returns None if a row is missing."""
        with self._transaction("DEFERRED") as index:  # so that the table is not dropped between lookup and mapping
            table = self._table(index, label)
            known = {} if table is None else look_up(index, KNOWN_ROWS, keys, table.name)
            if table is None or any(key not in known for key in keys):
                return None
            sound = self._intact(index, table, known)
            if len(sound) == len(known):
                row_N = np.fromiter((known[key] for key in keys), np.int64, len(keys))
                return StoredRows(table.mapped(), row_N, table.dtype)
        self._forget(label, known, sound)
        return None

    def dtype_of(self, label: str) -> str | None:
        """Returns the dtype of a table on disk, or None if there is no such table."""
        with self._transaction("DEFERRED") as index:
            table = self._table(index, label)
        return None if table is None else table.dtype

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
            if table is not None and table.size < table.count * table.row_bytes:
                self._drop(index, table)  # the file was lost, and appending must not make its old rows valid again
                table = None
            if table is None:
                table = Table(_name(label), smallest_dtype(rows, precision), rows.shape[1:], 0, self._file(label))
                values = (table.name, label, title, table.dtype, " ".join(map(str, table.shape)), 0, time.time())
                index.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            packed = _packed(rows, table, label)
            known = look_up(index, KNOWN_ROWS, keys, table.name)
            fresh = list({key: place for place, key in enumerate(keys) if key not in known}.items())
            new = packed[[place for _, place in fresh]]
            self._make_room(index, table.name, new.nbytes)
            write_rows(table.file, table.count * table.row_bytes, new)
            numbered = [(table.name, key, table.count + n, zlib.crc32(new[n])) for n, (key, _) in enumerate(fresh)]
            index.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", numbered)
            index.execute("UPDATE tables SET count = count + ? WHERE name = ?", (len(fresh), table.name))

    def touch(self, label: str) -> None:
        """Marks a table as used now, and drops the least recently used tables while the store exceeds its limit."""
        with self._transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE name = ?", (time.time(), _name(label)))
            self._make_room(index, _name(label), 0)

    def known_files(self, signatures: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """Returns the content keys of files that were hashed before and have the same (size, mtime_ns) as then."""
        paths = list(signatures)
        query = "SELECT path, size || ' ' || mtime_ns || ' ' || key FROM files WHERE path IN"
        with self._transaction("DEFERRED") as index:
            known = look_up(index, query, paths)
        split = {path: text.split(" ", 2) for path, text in known.items()}
        return {p: key for p, (size, mtime, key) in split.items() if (int(size), int(mtime)) == signatures[p]}

    def remember_files(self, files: Iterable[tuple[str, tuple[int, int], str]]) -> None:
        """Records (path, (size, mtime_ns), content key) of each file for `known_files`."""
        rows = [(path, *signature, key) for path, signature, key in files]
        if rows:
            with self._transaction("IMMEDIATE") as index:
                index.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def empty(self) -> int:
        """Drops all tables, all file records and, if damaged, the index itself. Returns the number of bytes freed."""
        if not self._path.parent.is_dir():
            return 0
        freed = sum(file.stat().st_size for file in self._path.parent.glob("*.bin"))
        try:
            with self._transaction("EXCLUSIVE") as index:
                for file in self._path.parent.glob("*.bin"):
                    file.unlink(missing_ok=True)
                for table in ("tables", "rows", "files"):
                    index.execute(f"DELETE FROM {table}")
        except TellapartError:
            for file in [*self._path.parent.glob("*.bin"), *self._path.parent.glob("index.sqlite*")]:
                file.unlink(missing_ok=True)
        return freed

    def remove(self, label: str) -> int:
        """Drops one table. Returns the number of bytes freed."""
        with self._transaction("EXCLUSIVE") as index:
            if (table := self._table(index, label)) is None:
                return 0
            freed = table.size
            self._drop(index, table)
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
        sizes = {label: file.stat().st_size if (file := self._file(label)).is_file() else 0 for _, label, *_ in rows}
        return [TableUse(title, label, count, sizes[label], used) for title, label, used, count in rows]

    def room(self) -> Room:
        """Returns the store's size, its limit, and the free disk space."""
        with cache_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            return Room(sum(use.bytes for use in self.usage()), self.limit_bytes, shutil.disk_usage(self.folder).free)

    def _file(self, label: str) -> Path:
        return self._path.with_name(f"{_name(label)}.bin")

    def _table(self, index: sqlite3.Connection, label: str) -> Table | None:
        query = "SELECT dtype, shape, count FROM tables WHERE name = ?"
        if (row := index.execute(query, (_name(label),)).fetchone()) is None:
            return None
        dtype, shape, count = row
        return Table(_name(label), dtype, tuple(int(length) for length in shape.split()), count, self._file(label))

    def _intact(self, index: sqlite3.Connection, table: Table, known: Mapping[str, int]) -> dict[str, int]:
        """Returns the ``known`` rows whose checksums match."""
        if table.size < table.count * table.row_bytes:
            return {}
        checked = self._checked.setdefault(table.name, set())
        damaged: set[str] = set()
        if new := [key for key, row in known.items() if row not in checked]:
            sums = look_up(index, "SELECT key, sum FROM rows WHERE name = ? AND key IN", new, table.name)
            rows = table.mapped()
            damaged = {key for key in new if zlib.crc32(rows[known[key]]) != sums[key]}
            checked.update(known[key] for key in new if key not in damaged)
        return {key: row for key, row in known.items() if key not in damaged}

    def _forget(self, label: str, known: Mapping[str, int], sound: Mapping[str, int]) -> None:
        """Drops the rows in ``known`` that are not in ``sound``, except those that another process has replaced."""
        damaged = [(_name(label), key, row) for key, row in known.items() if key not in sound]
        if damaged:
            with self._transaction("IMMEDIATE") as index:
                index.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND row = ?", damaged)
            self._checked.pop(_name(label), None)
            self.damaged[label] = self.damaged.get(label, 0) + len(damaged)

    def _make_room(self, index: sqlite3.Connection, keep: str, more: int) -> None:
        """Drops tables, least recently used first, until there is room for ``more`` bytes."""
        labels = [label for (label,) in index.execute("SELECT label FROM tables ORDER BY used").fetchall()]
        tables = [table for label in labels if (table := self._table(index, label)) is not None]
        over = sum(table.size for table in tables) + more - self.limit_bytes
        for table in tables:
            if over > 0 and table.name != keep:
                over -= table.size
                self._drop(index, table)

    def _drop(self, index: sqlite3.Connection, table: Table) -> None:
        # Remove the file first: if the process is killed now, the index lists a missing file, which `_intact` detects.
        table.file.unlink(missing_ok=True)
        for which in ("rows", "tables"):
            index.execute(f"DELETE FROM {which} WHERE name = ?", (table.name,))
        self._checked.pop(table.name, None)

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """Opens a connection for one transaction.

        No connection stays open, so forks, threads and ``--empty`` are safe.
        """
        with cache_errors(self.folder):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            index = sqlite3.connect(self._path, timeout=60, isolation_level=None)
            try:
                _prepare(index, self.folder)
                index.execute(f"BEGIN {kind}")
                try:
                    yield index
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # SQLite may already have rolled back (full disk)
                        index.execute("ROLLBACK")
                    raise
                index.execute("COMMIT")
            finally:
                index.close()


def _packed(rows: np.ndarray, table: Table, label: str) -> np.ndarray:
    """Converts rows to the table's dtype. Raises `TellapartError` if their shape or dtype does not fit the table."""
    fits = rows.shape[1:] == table.shape
    if fits and rows.dtype.str != table.dtype:  # half precision must be lossless
        with np.errstate(over="ignore"):
            fits = rows.dtype == np.float32 and np.array_equal(unpack(pack(rows, table.dtype), table.dtype), rows)
    if not fits:
        raise TellapartError(
            f"{label}: features have shape {rows.shape[1:]} and type {rows.dtype}, but those in the cache with the "
            f"same fingerprint have {table.shape} and "
            f"{np.dtype(table.dtype) if table.dtype != 'bfloat16' else 'bfloat16'}; run: tellapart cache --empty"
        )
    return pack(rows, table.dtype)


def _name(label: str) -> str:
    return hashlib.blake2b(label.encode(), digest_size=10).hexdigest()


def write_rows(file: Path, place: int, rows: np.ndarray) -> None:
    """Writes rows to a file at byte offset ``place`` and flushes them. If the disk is full, undoes a partial write."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        left, at = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data), place
        while left:
            written = os.pwrite(handle, left, at)
            left, at = left[written:], at + written
        os.fsync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, place)
        raise
    finally:
        os.close(handle)


def look_up(index: sqlite3.Connection, query: str, keys: Sequence[str], *first: str) -> dict[str, Any]:
    """Runs a query that ends in ``IN`` for any number of keys. Returns a dict of the first two columns."""
    rows: dict[str, Any] = {}
    for some in blocks_of(keys, KEYS_PER_QUERY):
        rows.update(index.execute(f"{query} ({','.join('?' * len(some))})", (*first, *some)).fetchall())
    return rows


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
