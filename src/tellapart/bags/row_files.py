"""Files of rows and arrays that the tasks of a large search write and read."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.utils.atomic_writes import replace_file
from tellapart.utils.write_errors import write_errors

NOT_FOUND = -1
PAIR = np.dtype([("row", "<i8"), ("cosine", "<f4")])  # a neighbour: its row number, and the cosine
NO_PAIR = np.array((NOT_FOUND, -np.inf), PAIR)


@dataclass(frozen=True)
class RowFile:
    """A file of rows of one shape and dtype. Tasks write disjoint ranges. Reading starts only after all rows have
    been written.
    """

    path: Path
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def write(self, first: int, array: np.ndarray) -> None:
        """Writes rows starting at row ``first``, and flushes them to disk."""
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            with self.path.open("r+b") as file:
                file.seek(first * math.prod(self.shape) * self.dtype.itemsize)
                file.write(np.ascontiguousarray(array, self.dtype).tobytes())
                file.flush()
                os.fsync(file.fileno())

    def read(self, index: np.ndarray | slice) -> np.ndarray:
        """Returns a copy of some rows. Maps the file only briefly, so that its pages do not count toward memory use."""
        return np.array(np.memmap(self.path, self.dtype, "r", 0, (self.rows, *self.shape))[index])


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a ``.npy`` file atomically."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)


def disk_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turns a disk error into a one-line error that says what to do."""
    return write_errors(path, "fix the problem and run the same command again; completed files are reused")
