"""The rows of one table on disk, in files of bounded size; and rows as an array that gathers them by number.

    FOLDER/rows/NAME-0000.bin   rows 0 to P − 1 of a table, one after the other
    FOLDER/rows/NAME.bin        all rows of a table that tellapart 0.1 wrote

While rows of a shard are mapped, its reader holds a shared lock of the kernel on it. So eviction sees which shards are
open, in whatever process, and a process killed at any moment leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

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
        """The number of the shard that a row is in."""
        return 0 if self.per_shard is None else row // self.per_shard

    def file(self, folder: Path, shard: int) -> Path:
        """The file of a shard."""
        return folder / "rows" / (f"{self.name}.bin" if self.per_shard is None else f"{self.name}-{shard:04}.bin")

    def shards(self) -> range:
        """The numbers of all shards that rows were written to."""
        return range(self.shard_of(self.count - 1) + 1 if self.count else 0)

    def rows_in(self, shard: int) -> int:
        """How many rows were written to a shard."""
        return self.count if self.per_shard is None else min(self.per_shard, self.count - shard * self.per_shard)


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of one row on disk."""
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == BF16 else np.dtype(dtype).itemsize)


def rows_per_shard(dtype: str, shape: Sequence[int]) -> int:
    """How many rows a new table puts into a file."""
    return max(1, SHARD_BYTES // max(1, row_bytes(dtype, shape)))


def pack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Rows as they lie on disk."""
    rows = np.ascontiguousarray(rows)
    if dtype == BF16:
        upper: np.ndarray = (rows.astype(np.float32, copy=False).view(np.uint32) >> 16).astype(np.uint16)
        return upper
    return rows.astype(np.dtype(dtype), copy=False)


def unpack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Rows from disk for use: half precision becomes float32."""
    if dtype == BF16:
        floats: np.ndarray = (rows.astype(np.uint32) << 16).view(np.float32)
        return floats
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def smallest_dtype(rows: np.ndarray, precision: str) -> str:
    """The type to keep float32 rows of a model in ``precision`` in: the smaller one where no bit is lost by it."""
    small = {"bf16": BF16, "fp16": np.dtype(np.float16).str}.get(precision)
    if small is None or rows.dtype != np.float32 or not rows.size:
        return str(rows.dtype.str)
    with np.errstate(over="ignore"):
        return small if np.array_equal(unpack(pack(rows, small), small), rows) else str(rows.dtype.str)


def write_rows(file: Path, place: int, rows: np.ndarray) -> None:
    """Put bytes at a place of a file and flush them; what did not fit is cut off again."""
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
    """Whether some process, this one included, has rows of a shard mapped."""
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
        """Map the file of a shard."""
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
