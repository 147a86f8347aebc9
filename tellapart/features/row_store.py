"""Rows of numbers on disk, found by the content key of a picture: the cache under `tellapart.features.store`.

    FOLDER/index.sqlite     which tables there are, which key has which row, which file has which key
    FOLDER/rows/NAME.bin    the rows of one table, one after the other, memory-mapped for reading

A row is valid once its bytes are flushed and the index lists it, in this order and under SQLite's write lock. A process
killed at any moment leaves at most bytes beyond the last valid row, which the next process overwrites. Several
processes may read and write at once. The rollback journal (not WAL) is used for it also works on
the network file systems where home folders lie.

Every row has a checksum. A process verifies it on the first access to the row; a damaged row is dropped and counted
(`RowStore.damaged`), and then computed again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import TellapartError

SCHEMA_VERSION = 2  # 1 had no checksums
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                     count INTEGER NOT NULL, used REAL NOT NULL);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER, PRIMARY KEY (name, key))
  WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""
KNOWN_ROWS = "SELECT key, row FROM rows WHERE name = ? AND key IN"
KEYS_PER_QUERY = 500  # parameters of one query; old builds of SQLite allow 999
GATHER_IN_MEMORY = 256 << 20


@dataclass(frozen=True)
class TableUse:
    """One line of ``tellapart cache``. ``used`` is in seconds since 1970."""

    label: str
    pictures: int
    bytes: int
    used: float


@dataclass(frozen=True)
class _Table:
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    count: int

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class RowStore:
    """Tables of rows below ``folder``, at most ``limit_bytes`` of them: beyond, the least recently used goes."""

    def __init__(self, folder: Path, limit_bytes: float) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.damaged: dict[str, int] = {}  # label to rows dropped by this process
        self._checked: dict[str, set[int]] = {}  # table's name to its rows that this process has compared or written

    # -- reading

    def known_rows(self, label: str, keys: Sequence[str]) -> dict[str, int]:
        """The rows of those keys that the table has."""
        name = _name(label)
        with self._transaction("DEFERRED") as index:
            table = _table(index, name)
            if table is None or not self._whole(table):
                return {}
            known = _look_up(index, KNOWN_ROWS, keys, name)
            sound = self._intact(index, table, known)
        self._forget(label, known, sound)
        return sound

    def known_files(self, signatures: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """The content keys of those files that were hashed before and have the same (size, mtime_ns) still."""
        paths = list(signatures)
        with self._transaction("DEFERRED") as index:
            known = _look_up(
                index, "SELECT path, size || ' ' || mtime_ns || ' ' || key FROM files WHERE path IN", paths
            )
        split = {path: text.split(" ", 2) for path, text in known.items()}
        return {p: key for p, (size, mtime, key) in split.items() if (int(size), int(mtime)) == signatures[p]}

    def remember_files(self, files: Iterable[tuple[str, tuple[int, int], str]]) -> None:
        """Keep (path, (size, mtime_ns), content key) for `known_files`."""
        rows = [(path, *signature, key) for path, signature, key in files]
        if rows:
            with self._transaction("IMMEDIATE") as index:
                index.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def read(self, label: str, keys: Sequence[str]) -> np.ndarray | None:
        """The rows of ``keys``, in their order, memory-mapped; None where one of them is not there.

        Rows that lie in the file as they are asked for are a view of it (copy on write: the file stays as it is);
        others are gathered, beyond 256 MiB into a temporary file that ends with the array.
        """
        name = _name(label)
        with self._transaction("DEFERRED") as index:  # no eviction may come between the answer and the mapping
            table = _table(index, name)
            known = _look_up(index, KNOWN_ROWS, keys, name)
            if table is None or not self._whole(table) or any(key not in known for key in keys):
                return None
            sound = self._intact(index, table, known)
            mapped = self._mapped(table)
        if len(sound) < len(known):
            self._forget(label, known, sound)
            return None
        rows = np.fromiter((known[key] for key in keys), np.int64, len(keys))
        first = int(rows[0]) if len(rows) else 0
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            return mapped[first : first + len(rows)]
        return self._gather(mapped, rows)

    # -- writing

    def append(self, label: str, keys: Sequence[str], rows: np.ndarray) -> None:
        """Add rows; keys that are there already (another process was faster) keep theirs.

        Raises `TellapartError` where the disk is full (nothing half-written counts) or the rows' shape is another
        than the table's.
        """
        name = _name(label)
        with self._transaction("IMMEDIATE") as index:
            table = _table(index, name)
            if table is not None and not self._whole(table):  # the row file was lost: start this table anew
                self._drop(index, name)
                table = None
            if table is None:
                table = _Table(name, rows.dtype, rows.shape[1:], 0)
                values = (name, label, rows.dtype.str, _shape_text(rows.shape[1:]), 0, time.time())
                index.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?)", values)
            if (table.dtype, table.shape) != (rows.dtype, rows.shape[1:]):
                raise TellapartError(
                    f"{label}: features of shape {rows.shape[1:]} where the cache has {table.shape} under the same "
                    "fingerprint; type: tellapart cache --empty"
                )
            known = _look_up(index, KNOWN_ROWS, keys, name)
            fresh = list({key: place for place, key in enumerate(keys) if key not in known}.items())
            new = np.ascontiguousarray(rows[[place for _, place in fresh]])
            self._write(table, new)
            numbered = [(name, key, table.count + n, zlib.crc32(new[n])) for n, (key, _) in enumerate(fresh)]
            index.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", numbered)
            index.execute("UPDATE tables SET count = count + ? WHERE name = ?", (len(fresh), name))

    def touch(self, label: str) -> None:
        """Mark a table as used now, and drop the least recently used others while all exceed the limit."""
        with self._transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE name = ?", (time.time(), _name(label)))
            over = self._bytes(index) > self.limit_bytes
        if over:
            self._evict(keep=_name(label))

    def empty(self) -> int:
        """Drop every table and every remembered file; the bytes set free. A damaged index goes as well."""
        if not self.folder.is_dir():
            return 0
        freed = sum(file.stat().st_size for file in self.folder.glob("rows/*.bin"))
        try:
            with self._transaction("EXCLUSIVE") as index:
                for file in self.folder.glob("rows/*.bin"):
                    file.unlink(missing_ok=True)
                for table in ("tables", "rows", "files"):
                    index.execute(f"DELETE FROM {table}")
        except TellapartError:
            for file in [*self.folder.glob("rows/*.bin"), *self.folder.glob("index.sqlite*")]:
                file.unlink(missing_ok=True)
        return freed

    def usage(self) -> list[TableUse]:
        """The contents of the cache, last used first."""
        if not self._index_file.is_file():
            return []
        with self._transaction("DEFERRED") as index:
            found = index.execute("SELECT name, label, count, used FROM tables ORDER BY used DESC").fetchall()
            return [TableUse(label, count, self._size(name), used) for name, label, count, used in found]

    # -- inside

    @property
    def _index_file(self) -> Path:
        return self.folder / "index.sqlite"

    def _file(self, name: str) -> Path:
        return self.folder / "rows" / f"{name}.bin"

    def _size(self, name: str) -> int:
        file = self._file(name)
        return file.stat().st_size if file.is_file() else 0

    def _mapped(self, table: _Table) -> np.ndarray:
        return np.memmap(self._file(table.name), table.dtype, mode="c", shape=(table.count, *table.shape))

    def _intact(self, index: sqlite3.Connection, table: _Table, known: Mapping[str, int]) -> dict[str, int]:
        """Those of the ``known`` rows whose bytes are as they were written. Rows of version 1 pass."""
        checked = self._checked.setdefault(table.name, set())
        new = [key for key, row in known.items() if row not in checked]
        if not new:
            return dict(known)
        sums = _look_up(index, "SELECT key, sum FROM rows WHERE name = ? AND key IN", new, table.name)
        mapped, damaged = self._mapped(table), set()
        for key in new:
            if sums[key] is not None and zlib.crc32(mapped[known[key]]) != sums[key]:
                damaged.add(key)
            else:
                checked.add(known[key])
        return {key: row for key, row in known.items() if key not in damaged}

    def _forget(self, label: str, known: Mapping[str, int], sound: Mapping[str, int]) -> None:
        """Drop the damaged rows, those known and not sound; what another process wrote in their place stays."""
        name, damaged = _name(label), [(key, row) for key, row in known.items() if key not in sound]
        if not damaged:
            return
        with self._transaction("IMMEDIATE") as index:
            rows = [(name, key, row) for key, row in damaged]
            index.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND row = ?", rows)
        self.damaged[label] = self.damaged.get(label, 0) + len(damaged)

    def _whole(self, table: _Table) -> bool:
        return self._size(table.name) >= table.count * table.row_bytes

    def _bytes(self, index: sqlite3.Connection) -> int:
        return sum(self._size(name) for (name,) in index.execute("SELECT name FROM tables").fetchall())

    def _write(self, table: _Table, rows: np.ndarray) -> None:
        """Put rows behind the counted ones and flush them; what did not fit is cut off again."""
        start = table.count * table.row_bytes
        file = os.open(self._file(table.name), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            left, place = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data), start
            while left:
                written = os.pwrite(file, left, place)
                left, place = left[written:], place + written
            os.fsync(file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, start)
            raise
        finally:
            os.close(file)

    def _gather(self, mapped: np.ndarray, rows: np.ndarray) -> np.ndarray:
        wanted = len(rows) * mapped[:1].nbytes
        if wanted <= GATHER_IN_MEMORY:
            gathered: np.ndarray = mapped[rows]
            return gathered
        with _cache_errors(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            if hasattr(os, "posix_fallocate"):  # a full disk must be an error here, not a SIGBUS at the first write
                os.posix_fallocate(file.fileno(), 0, wanted)
            gathered = np.memmap(file, mapped.dtype, mode="r+", shape=(len(rows), *mapped.shape[1:]))
            for start in range(0, len(rows), 1024):
                gathered[start : start + 1024] = mapped[rows[start : start + 1024]]
            return gathered

    def _evict(self, keep: str) -> None:
        with self._transaction("EXCLUSIVE") as index:  # waits for readers that are about to map a file
            old = index.execute("SELECT name FROM tables WHERE name != ? ORDER BY used", (keep,)).fetchall()
            for (name,) in old:
                if self._bytes(index) <= self.limit_bytes:
                    break
                self._drop(index, name)

    def _drop(self, index: sqlite3.Connection, name: str) -> None:
        # The file first: killed in between, the index speaks of a file that is not there, which `_whole` notices.
        self._file(name).unlink(missing_ok=True)
        index.execute("DELETE FROM rows WHERE name = ?", (name,))
        index.execute("DELETE FROM tables WHERE name = ?", (name,))

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: none is kept, so forks, threads and ``--empty`` cannot be hurt by it."""
        with _cache_errors(self.folder):
            (self.folder / "rows").mkdir(parents=True, exist_ok=True)
            index = sqlite3.connect(self._index_file, timeout=60, isolation_level=None)
            try:
                _prepare(index, self.folder)
                index.execute(f"BEGIN {kind}")
                try:
                    yield index
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself (full disk)
                        index.execute("ROLLBACK")
                    raise
                index.execute("COMMIT")
            finally:
                index.close()


def _prepare(index: sqlite3.Connection, folder: Path) -> None:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version not in (0, 1):
        raise TellapartError(f"{folder}: a cache of another version of tellapart; type: tellapart cache --empty")
    index.execute("BEGIN EXCLUSIVE")
    (version,) = index.execute("PRAGMA user_version").fetchone()  # another process may have been faster
    if version == 0:
        for statement in filter(str.strip, SCHEMA.split(";")):
            index.execute(statement)
    if version == 1:
        index.execute("ALTER TABLE rows ADD COLUMN sum INTEGER")
    index.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    index.execute("COMMIT")


def _look_up(index: sqlite3.Connection, query: str, keys: Sequence[str], *first: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = keys[start : start + KEYS_PER_QUERY]
        found.update(index.execute(f"{query} ({','.join('?' * len(some))})", (*first, *some)).fetchall())
    return found


def _table(index: sqlite3.Connection, name: str) -> _Table | None:
    found = index.execute("SELECT dtype, shape, count FROM tables WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    dtype, shape, count = found
    return _Table(name, np.dtype(dtype), tuple(int(length) for length in shape.split()), count)


def _shape_text(shape: tuple[int, ...]) -> str:
    return " ".join(map(str, shape))


def _name(label: str) -> str:
    return hashlib.blake2b(label.encode(), digest_size=10).hexdigest()


@contextlib.contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    """What the system says about the cache folder, as one line with what to do."""
    elsewhere = "set TELLAPART_CACHE to another folder"
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise TellapartError(_full(folder)) from None
        if "locked" in str(error):
            raise TellapartError(f"{folder}: another process holds the cache for over a minute; {elsewhere}") from None
        if "readonly" in str(error) or "unable to open" in str(error):
            raise TellapartError(f"{folder}: the cache cannot be written ({error}); {elsewhere}") from None
        raise TellapartError(f"{folder}: the cache is damaged ({error}); type: tellapart cache --empty") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TellapartError(_full(folder)) from None
        raise TellapartError(f"{folder}: the cache cannot be used ({error.strerror or error}); {elsewhere}") from None


def _full(folder: Path) -> str:
    return f"{folder}: no space left for the cache; type: tellapart cache --empty, or set TELLAPART_CACHE elsewhere"
