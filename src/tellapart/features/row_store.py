"""Rows of numbers on disk, found by the content key of a picture: the cache under `tellapart.features.store`.

    FOLDER/index.sqlite         which tables there are, which key has which row, and which file has which key
    FOLDER/rows/NAME-0000.bin   rows 0 to P − 1 of a table, one after the other
    FOLDER/rows/NAME.bin        all rows of a table that tellapart 0.1 wrote

The index is opened for each transaction. The rollback journal (not WAL) is used, for it also works on the network file
systems where home folders lie. A row is valid once its bytes are flushed and the index lists it, in this order and
under SQLite's write lock. A process killed at any moment leaves at most bytes beyond the last valid row, which the next
process overwrites. Several processes may read and write at once.

Every row has a checksum. A process verifies it on the first access to the row; a damaged row is dropped and counted
(`RowStore.damaged`), and then computed again.

While rows of a file are mapped, its reader holds a shared lock of the kernel on it. So eviction sees which files are
open, in whatever process, and a process killed at any moment leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tellapart.errors import TellapartError

TITLES = "CREATE TABLE IF NOT EXISTS titles (name TEXT PRIMARY KEY, title TEXT NOT NULL)"  # earlier versions had none
KNOWN_ROWS = "SELECT key, row FROM rows WHERE name = ? AND key IN"


@dataclass(frozen=True)
class TableUse:
    """One line of ``tellapart cache``. ``used`` is in seconds since 1970; ``name`` is "" where it was not kept."""

    name: str
    label: str
    pictures: int
    bytes: int
    used: float


@dataclass(frozen=True)
class Room:
    """Bytes: those of the store, the most that it may hold, and those that are free on its disk."""

    used: int
    limit: float
    free: int


class RowStore:
    """Tables of rows below ``folder``, at most ``limit_bytes`` of them: beyond, the least recently used shards go.

    A shard that some process has open stays, and so do those of the table that is being written.
    """

    def __init__(self, folder: Path, limit_bytes: float) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.damaged: dict[str, int] = {}  # label to rows dropped by this process
        self._index = CacheIndex(folder)
        self._checked: dict[str, set[int]] = {}  # table's name to its rows that this process has compared or written

    # -- reading

    def known_rows(self, label: str, keys: Sequence[str]) -> dict[str, int]:
        """Returns the rows of those keys that the table has."""
        name = _name(label)
        with self._index.transaction("DEFERRED") as index:
            table = _table(index, name)
            if table is None:
                return {}
            known = look_up(index, KNOWN_ROWS, keys, name)
            sound = self._intact(index, table, known)
        self._forget(label, known, sound)
        return sound

    def known_files(self, signatures: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """Returns the content keys of those files that were hashed before and have the same (size, mtime_ns) still."""
        paths = list(signatures)
        query = "SELECT path, size || ' ' || mtime_ns || ' ' || key FROM files WHERE path IN"
        with self._index.transaction("DEFERRED") as index:
            known = look_up(index, query, paths)
        split = {path: text.split(" ", 2) for path, text in known.items()}
        return {p: key for p, (size, mtime, key) in split.items() if (int(size), int(mtime)) == signatures[p]}

    def remember_files(self, files: Iterable[tuple[str, tuple[int, int], str]]) -> None:
        """Keeps (path, (size, mtime_ns), content key) for `known_files`."""
        rows = [(path, *signature, key) for path, signature, key in files]
        if rows:
            with self._index.transaction("IMMEDIATE") as index:
                index.executemany("REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def read(self, label: str, keys: Sequence[str]) -> StoredRows | None:
        """The rows of ``keys``, in their order; None where one of them is not there. Their shards are open until the
        result is dropped."""
        name = _name(label)
        with self._index.transaction("DEFERRED") as index:  # no eviction may come between the answer and the mapping
            table = _table(index, name)
            known = look_up(index, KNOWN_ROWS, keys, name)
            if table is None or any(key not in known for key in keys):
                return None
            sound = self._intact(index, table, known)
            if len(sound) == len(known):
                row_N = np.fromiter((known[key] for key in keys), np.int64, len(keys))
                shards = {shard: OpenShard.open(table, self.folder, shard) for shard in _shards(table, known.values())}
                return StoredRows(table, shards, row_N)
        self._forget(label, known, sound)
        return None

    def dtype_of(self, label: str) -> str | None:
        """Returns the type of a table's rows on disk; None where there is no table."""
        with self._index.transaction("DEFERRED") as index:
            table = _table(index, _name(label))
        return None if table is None else table.dtype

    # -- writing

    def append(
        self, label: str, keys: Sequence[str], rows: np.ndarray, precision: str = "fp32", title: str = ""
    ) -> None:
        """Adds rows; keys that are there already (another process was faster) keep theirs.

        precision: of the model that made them; a new table keeps half precision as such where no bit is lost by it.
        title: what `usage` calls the table.
        Raises `TellapartError` where the disk is full (nothing half-written counts) or the rows' shape is another
        than the table's.
        """
        name = _name(label)
        with self._index.transaction("IMMEDIATE") as index:
            table = _table(index, name) or self._new_table(index, label, rows, precision)
            index.execute(TITLES)
            if title:
                index.execute("REPLACE INTO titles VALUES (?, ?)", (name, title))
            packed = _packed(rows, table, label)
            if table.count and self._sizes(table).get(last := table.shard_of(table.count - 1), 0) < (
                table.rows_in(last) * table.row_bytes
            ):
                self._drop(index, table, last)  # the file was lost: what is written behind it must not bring it back
            known = look_up(index, KNOWN_ROWS, keys, name)
            fresh = list({key: place for place, key in enumerate(keys) if key not in known}.items())
            new = packed[[place for _, place in fresh]]
            self._make_room(index, name, new.nbytes)
            self._write(table, new)
            numbered = [(name, key, table.count + n, zlib.crc32(new[n])) for n, (key, _) in enumerate(fresh)]
            index.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", numbered)
            index.execute("UPDATE tables SET count = count + ? WHERE name = ?", (len(fresh), name))

    def touch(self, label: str) -> None:
        """Marks a table as used now, and drops least recently used shards of others while all exceed the limit."""
        with self._index.transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE name = ?", (time.time(), _name(label)))
            self._make_room(index, _name(label), 0)

    def empty(self) -> int:
        """Drops every table, every remembered file and a damaged index. Returns the bytes set free."""
        if not self.folder.is_dir():
            return 0
        freed = sum(file.stat().st_size for file in self.folder.glob("rows/*.bin"))
        try:
            with self._index.transaction("EXCLUSIVE") as index:
                for file in self.folder.glob("rows/*.bin"):
                    file.unlink(missing_ok=True)
                for table in ("tables", "rows", "files"):
                    index.execute(f"DELETE FROM {table}")
        except TellapartError:
            for file in [*self.folder.glob("rows/*.bin"), *self.folder.glob("index.sqlite*")]:
                file.unlink(missing_ok=True)
        return freed

    def remove(self, label: str) -> int:
        """Drops one table. Returns the bytes set free."""
        with self._index.transaction("EXCLUSIVE") as index:
            if (table := _table(index, _name(label))) is None:
                return 0
            freed = sum(self._sizes(table).values())
            for shard in table.shards():
                self._drop(index, table, shard)
            index.execute("DELETE FROM tables WHERE name = ?", (table.name,))
        return freed

    def usage(self) -> list[TableUse]:
        """Returns the contents of the cache, last used first."""
        if not self._index.path.is_file():
            return []
        with self._index.transaction("DEFERRED") as index:
            found = index.execute(
                "SELECT name, label, used, (SELECT COUNT(*) FROM rows WHERE rows.name = tables.name) FROM tables "
                "ORDER BY used DESC"
            ).fetchall()
            tables = {name: _table(index, name) for name, *_ in found}
            there = index.execute("SELECT 1 FROM sqlite_master WHERE name = 'titles'").fetchone()
            titles = dict(index.execute("SELECT name, title FROM titles").fetchall()) if there else {}
        return [
            TableUse(titles.get(name, ""), label, count, sum(self._sizes(tables[name]).values()), used)
            for name, label, used, count in found
        ]

    def room(self) -> Room:
        """Returns what the store holds, may hold, and could hold."""
        with cache_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            return Room(sum(use.bytes for use in self.usage()), self.limit_bytes, shutil.disk_usage(self.folder).free)

    # -- inside

    def _sizes(self, table: Table | None) -> dict[int, int]:
        """Returns bytes of the shards that are there."""
        if table is None:
            return {}
        files = {shard: table.file(self.folder, shard) for shard in table.shards()}
        return {shard: file.stat().st_size for shard, file in files.items() if file.is_file()}

    def _intact(self, index: sqlite3.Connection, table: Table, known: Mapping[str, int]) -> dict[str, int]:
        """Returns those of the ``known`` rows whose bytes are as they were written. Rows of version 1 pass."""
        whole = {shard for shard, size in self._sizes(table).items() if size >= table.rows_in(shard) * table.row_bytes}
        checked = self._checked.setdefault(table.name, set())
        lost = {key for key, row in known.items() if table.shard_of(row) not in whole}
        new = [key for key, row in known.items() if row not in checked and key not in lost]
        if new:
            sums = look_up(index, "SELECT key, sum FROM rows WHERE name = ? AND key IN", new, table.name)
            shards = {n: OpenShard.open(table, self.folder, n) for n in _shards(table, (known[key] for key in new))}
            for key in new:
                row, shard = known[key], table.shard_of(known[key])
                first = 0 if table.per_shard is None else shard * table.per_shard
                if sums[key] is not None and zlib.crc32(shards[shard].rows[row - first]) != sums[key]:
                    lost.add(key)
                else:
                    checked.add(row)
        return {key: row for key, row in known.items() if key not in lost}

    def _forget(self, label: str, known: Mapping[str, int], sound: Mapping[str, int]) -> None:
        """Drops the damaged rows, those known and not sound; what another process wrote in their place stays."""
        name, damaged = _name(label), [(key, row) for key, row in known.items() if key not in sound]
        if not damaged:
            return
        with self._index.transaction("IMMEDIATE") as index:
            rows = [(name, key, row) for key, row in damaged]
            index.executemany("DELETE FROM rows WHERE name = ? AND key = ? AND row = ?", rows)
        self._checked.get(name, set()).difference_update(row for _, row in damaged)
        self.damaged[label] = self.damaged.get(label, 0) + len(damaged)

    def _new_table(self, index: sqlite3.Connection, label: str, rows: np.ndarray, precision: str) -> Table:
        dtype, shape = smallest_dtype(rows, precision), rows.shape[1:]
        table = Table(_name(label), dtype, shape, 0, rows_per_shard(dtype, shape))
        values = (table.name, label, dtype, " ".join(map(str, shape)), 0, time.time(), table.per_shard)
        index.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        return table

    def _write(self, table: Table, rows: np.ndarray) -> None:
        """Puts rows behind the counted ones, into as many shards as they need."""
        done = 0
        while done < len(rows):
            row = table.count + done
            shard = table.shard_of(row)
            first, end = 0, len(rows)
            if table.per_shard is not None:
                first = shard * table.per_shard
                end = min(end, done + first + table.per_shard - row)
            write_rows(table.file(self.folder, shard), (row - first) * table.row_bytes, rows[done:end])
            done = end

    def _make_room(self, index: sqlite3.Connection, keep: str, more: int) -> None:
        """Drops shards, the least recently used table's first, until ``more`` bytes fit; none that is open."""
        names = [name for (name,) in index.execute("SELECT name FROM tables ORDER BY used").fetchall()]
        tables = {name: table for name in names if (table := _table(index, name)) is not None}
        sizes = {name: self._sizes(table) for name, table in tables.items()}
        over = sum(sum(of.values()) for of in sizes.values()) + more - self.limit_bytes
        for name, table in tables.items():
            for shard, size in sizes[name].items():
                if over <= 0 or name == keep:
                    break
                if is_open(table.file(self.folder, shard)):
                    continue
                self._drop(index, table, shard)
                over -= size
            if name != keep and not self._sizes(table):
                index.execute("DELETE FROM tables WHERE name = ?", (name,))
                self._checked.pop(name, None)

    def _drop(self, index: sqlite3.Connection, table: Table, shard: int) -> None:
        # The file first: killed in between, the index speaks of a file that is not there, which `_intact` notices.
        table.file(self.folder, shard).unlink(missing_ok=True)
        first = 0 if table.per_shard is None else shard * table.per_shard
        span = (table.name, first, first + table.rows_in(shard))
        index.execute("DELETE FROM rows WHERE name = ? AND row >= ? AND row < ?", span)
        self._checked.get(table.name, set()).difference_update(range(*span[1:]))


def _table(index: sqlite3.Connection, name: str) -> Table | None:
    found = index.execute("SELECT dtype, shape, count, per_shard FROM tables WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    dtype, shape, count, per_shard = found
    return Table(name, dtype, tuple(int(length) for length in shape.split()), count, per_shard)


def _shards(table: Table, rows: Iterable[int]) -> set[int]:
    return {table.shard_of(row) for row in rows}


def _packed(rows: np.ndarray, table: Table, label: str) -> np.ndarray:
    """Returns rows in the table's type. Raises `TellapartError` where they do not fit it."""
    fits = rows.shape[1:] == table.shape
    if fits and rows.dtype.str != table.dtype:  # half precision: the same bits must come back
        with np.errstate(over="ignore"):
            fits = rows.dtype == np.float32 and np.array_equal(unpack(pack(rows, table.dtype), table.dtype), rows)
    if not fits:
        raise TellapartError(
            f"{label}: features of shape {rows.shape[1:]} in {rows.dtype} where the cache has {table.shape} in "
            f"{np.dtype(table.dtype) if table.dtype != 'bfloat16' else 'bfloat16'} under the same fingerprint; type: "
            "tellapart cache --empty"
        )
    return pack(rows, table.dtype)


def _name(label: str) -> str:
    return hashlib.blake2b(label.encode(), digest_size=10).hexdigest()


SHARD_BYTES = 1 << 30  # a file of rows is no larger, unless one row is
BF16 = "bfloat16"  # numpy has no such type: rows are kept as the upper halves of float32


@dataclass(frozen=True)
class Table:
    """Rows of one shape and type: ``count`` were written, ``per_shard`` to a file (None: all in one)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    per_shard: int | None

    @property
    def disk_dtype(self) -> np.dtype[Any]:
        """As numpy reads the file."""
        return np.dtype(np.uint16) if self.dtype == BF16 else np.dtype(self.dtype)

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.dtype, self.shape)

    def shard_of(self, row: int) -> int:
        """Returns the number of the shard that a row is in."""
        return 0 if self.per_shard is None else row // self.per_shard

    def file(self, folder: Path, shard: int) -> Path:
        """Returns the file of a shard."""
        return folder / "rows" / (f"{self.name}.bin" if self.per_shard is None else f"{self.name}-{shard:04}.bin")

    def shards(self) -> range:
        """Returns the numbers of all shards that rows were written to."""
        return range(self.shard_of(self.count - 1) + 1 if self.count else 0)

    def rows_in(self, shard: int) -> int:
        """Returns how many rows were written to a shard."""
        return self.count if self.per_shard is None else min(self.per_shard, self.count - shard * self.per_shard)


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Returns bytes of one row on disk."""
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == BF16 else np.dtype(dtype).itemsize)


def rows_per_shard(dtype: str, shape: Sequence[int]) -> int:
    """Returns how many rows a new table puts into a file."""
    return max(1, SHARD_BYTES // max(1, row_bytes(dtype, shape)))


def pack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Returns rows as they lie on disk."""
    rows = np.ascontiguousarray(rows)
    if dtype == BF16:
        upper: np.ndarray = (rows.astype(np.float32, copy=False).view(np.uint32) >> 16).astype(np.uint16)
        return upper
    return rows.astype(np.dtype(dtype), copy=False)


def unpack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Returns rows from disk for use: half precision becomes float32."""
    if dtype == BF16:
        floats: np.ndarray = (rows.astype(np.uint32) << 16).view(np.float32)
        return floats
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def smallest_dtype(rows: np.ndarray, precision: str) -> str:
    """Returns the type to keep float32 rows of a model in ``precision`` in: the smaller one where no bit is lost by
    it.
    """
    small = {"bf16": BF16, "fp16": np.dtype(np.float16).str}.get(precision)
    if small is None or rows.dtype != np.float32 or not rows.size:
        return str(rows.dtype.str)
    with np.errstate(over="ignore"):
        return small if np.array_equal(unpack(pack(rows, small), small), rows) else str(rows.dtype.str)


def write_rows(file: Path, place: int, rows: np.ndarray) -> None:
    """Puts bytes at a place of a file and flushes them; what did not fit is cut off again."""
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


def is_open(file: Path) -> bool:
    """Returns whether some process, this one included, has rows of a shard mapped."""
    try:
        handle = os.open(file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)  # a file system without locks: never known to be open
    finally:
        os.close(handle)


class OpenShard:
    """A shard mapped for reading, copy on write: the file stays as it is. It counts as open while this lives."""

    def __init__(self, rows: np.ndarray, handle: int) -> None:
        self.rows = rows
        weakref.finalize(self, os.close, handle)

    @classmethod
    def open(cls, table: Table, folder: Path, shard: int) -> OpenShard:
        """Maps the file of a shard."""
        path = table.file(folder, shard)
        handle = os.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # no locks there: a shard may be evicted, and stays readable
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            shape = (table.rows_in(shard), *table.shape)
            return cls(np.memmap(path, table.disk_dtype, mode="c", shape=shape), handle)
        except BaseException:
            os.close(handle)
            raise


class StoredRows(NDArrayOperatorsMixin):
    """Rows of the store as an array gives them, by a number, a slice or an array of numbers; read when asked for.

    Any order and any subset of pictures is the same copy on disk. Half precision is read as float32.
    ``numpy.asarray`` gives all rows in memory.
    """

    def __init__(self, table: Table, shards: dict[int, OpenShard], row_N: np.ndarray) -> None:
        self._table, self._shards, self._row_N = table, shards, row_N
        self.dtype = np.dtype(np.float32) if table.dtype == BF16 or self._half else table.disk_dtype
        self.shape = (len(row_N), *table.shape)
        self.ndim = len(self.shape)

    @property
    def _half(self) -> bool:
        return self._table.disk_dtype == np.float16

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._row_N)

    @overload
    def __getitem__(self, chosen: int | np.integer[Any]) -> np.ndarray: ...
    @overload
    def __getitem__(self, chosen: slice | np.ndarray | Sequence[int] | tuple[Any, ...]) -> np.ndarray: ...
    def __getitem__(self, chosen: Any) -> np.ndarray:
        if isinstance(chosen, tuple):  # rows, then parts of them
            found = self[chosen[0]]
            return found[chosen[1:] if found.ndim < self.ndim else (slice(None), *chosen[1:])]
        if isinstance(chosen, int | np.integer):
            row: np.ndarray = self._gather(self._row_N[[int(chosen)]])[0]
            return row
        return self._gather(self._row_N[chosen if isinstance(chosen, slice) else np.asarray(chosen)])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self._gather(self._row_N)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        """Operators read all rows first."""
        arrays = [np.asarray(given) if isinstance(given, StoredRows) else given for given in inputs]
        return getattr(ufunc, method)(*arrays, **settings)

    def _gather(self, row_M: np.ndarray) -> np.ndarray:
        """New rows in memory, those of a shard together."""
        found = np.empty((len(row_M), *self._table.shape), self.dtype)
        shard_M = np.zeros(len(row_M), np.int64) if self._table.per_shard is None else row_M // self._table.per_shard
        for shard in np.unique(shard_M).tolist():
            place_M = np.flatnonzero(shard_M == shard)
            first = 0 if self._table.per_shard is None else shard * self._table.per_shard
            found[place_M] = unpack(self._shards[shard].rows[row_M[place_M] - first], self._table.dtype)
        return found


SCHEMA_VERSION = 3  # 1 had no checksums, 2 no shards
SCHEMA = """
CREATE TABLE tables (name TEXT PRIMARY KEY, label TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
                     count INTEGER NOT NULL, used REAL NOT NULL, per_shard INTEGER);
CREATE TABLE rows (name TEXT NOT NULL, key TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER, PRIMARY KEY (name, key))
  WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, key TEXT NOT NULL)
  WITHOUT ROWID;
"""
CHANGES = {  # from a version to the next one
    1: "ALTER TABLE rows ADD COLUMN sum INTEGER",
    2: "ALTER TABLE tables ADD COLUMN per_shard INTEGER",
}
KEYS_PER_QUERY = 500  # parameters of one query; old builds of SQLite allow 999


class CacheIndex:
    """``FOLDER/index.sqlite``, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "index.sqlite"

    @contextlib.contextmanager
    def transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: none is kept, so forks, threads and ``--empty`` cannot be hurt by it."""
        with cache_errors(self.folder):
            (self.folder / "rows").mkdir(parents=True, exist_ok=True)
            index = sqlite3.connect(self.path, timeout=60, isolation_level=None)
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


def look_up(index: sqlite3.Connection, query: str, keys: Sequence[str], *first: str) -> dict[str, Any]:
    """Returns the rows of a query that ends in ``IN``, for any number of keys: its first column to its second."""
    found: dict[str, Any] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = keys[start : start + KEYS_PER_QUERY]
        found.update(index.execute(f"{query} ({','.join('?' * len(some))})", (*first, *some)).fetchall())
    return found


@contextlib.contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turns what the system says about the cache folder into one line with what to do."""
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


def _prepare(index: sqlite3.Connection, folder: Path) -> None:
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version not in (0, *CHANGES):
        raise TellapartError(f"{folder}: a cache of another version of tellapart; type: tellapart cache --empty")
    index.execute("BEGIN EXCLUSIVE")
    (version,) = index.execute("PRAGMA user_version").fetchone()  # another process may have been faster
    if version == 0:
        for statement in filter(str.strip, SCHEMA.split(";")):
            index.execute(statement)
    else:
        for before in range(version, SCHEMA_VERSION):
            index.execute(CHANGES[before])
    index.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    index.execute("COMMIT")


def _full(folder: Path) -> str:
    return f"{folder}: no space left for the cache; type: tellapart cache --empty, or set TELLAPART_CACHE elsewhere"
