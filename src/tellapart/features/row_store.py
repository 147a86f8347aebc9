"""Rows of numbers on disk, found by the content key of a picture: the cache under `tellapart.features.store`.

`tellapart.features.cache_index` says which tables there are, which key has which row, and which file has which key;
`tellapart.features.shards` holds the rows themselves.

A row is valid once its bytes are flushed and the index lists it, in this order and under SQLite's write lock. A process
killed at any moment leaves at most bytes beyond the last valid row, which the next process overwrites. Several
processes may read and write at once.

Every row has a checksum. A process verifies it on the first access to the row; a damaged row is dropped and counted
(`RowStore.damaged`), and then computed again.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellapart.errors import TellapartError
from tellapart.features.cache_index import CacheIndex, cache_errors, look_up
from tellapart.features.shards import (
    OpenShard,
    StoredRows,
    Table,
    is_open,
    pack,
    rows_per_shard,
    smallest_dtype,
    unpack,
    write_rows,
)

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
        """The rows of those keys that the table has."""
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
        """The content keys of those files that were hashed before and have the same (size, mtime_ns) still."""
        paths = list(signatures)
        query = "SELECT path, size || ' ' || mtime_ns || ' ' || key FROM files WHERE path IN"
        with self._index.transaction("DEFERRED") as index:
            known = look_up(index, query, paths)
        split = {path: text.split(" ", 2) for path, text in known.items()}
        return {p: key for p, (size, mtime, key) in split.items() if (int(size), int(mtime)) == signatures[p]}

    def remember_files(self, files: Iterable[tuple[str, tuple[int, int], str]]) -> None:
        """Keep (path, (size, mtime_ns), content key) for `known_files`."""
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
        """The type of a table's rows on disk; None where there is no table."""
        with self._index.transaction("DEFERRED") as index:
            table = _table(index, _name(label))
        return None if table is None else table.dtype

    # -- writing

    def append(
        self, label: str, keys: Sequence[str], rows: np.ndarray, precision: str = "fp32", title: str = ""
    ) -> None:
        """Add rows; keys that are there already (another process was faster) keep theirs.

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
        """Mark a table as used now, and drop least recently used shards of others while all exceed the limit."""
        with self._index.transaction("IMMEDIATE") as index:
            index.execute("UPDATE tables SET used = ? WHERE name = ?", (time.time(), _name(label)))
            self._make_room(index, _name(label), 0)

    def empty(self) -> int:
        """Drop every table and every remembered file; the bytes set free. A damaged index goes as well."""
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
        """Drop one table; the bytes set free."""
        with self._index.transaction("EXCLUSIVE") as index:
            if (table := _table(index, _name(label))) is None:
                return 0
            freed = sum(self._sizes(table).values())
            for shard in table.shards():
                self._drop(index, table, shard)
            index.execute("DELETE FROM tables WHERE name = ?", (table.name,))
        return freed

    def usage(self) -> list[TableUse]:
        """The contents of the cache, last used first."""
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
        """What the store holds, may hold, and could hold."""
        with cache_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            return Room(sum(use.bytes for use in self.usage()), self.limit_bytes, shutil.disk_usage(self.folder).free)

    # -- inside

    def _sizes(self, table: Table | None) -> dict[int, int]:
        """Bytes of the shards that are there."""
        if table is None:
            return {}
        files = {shard: table.file(self.folder, shard) for shard in table.shards()}
        return {shard: file.stat().st_size for shard, file in files.items() if file.is_file()}

    def _intact(self, index: sqlite3.Connection, table: Table, known: Mapping[str, int]) -> dict[str, int]:
        """Those of the ``known`` rows whose bytes are as they were written. Rows of version 1 pass."""
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
        """Drop the damaged rows, those known and not sound; what another process wrote in their place stays."""
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
        """Put rows behind the counted ones, into as many shards as they need."""
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
        """Drop shards, the least recently used table's first, until ``more`` bytes fit; none that is open."""
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
    """Rows in the table's type. Raises `TellapartError` where they do not fit it."""
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
