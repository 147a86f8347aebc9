"""Array-like access to rows on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tellapart.features.packed_rows import BF16, unpack


class StoredRows(NDArrayOperatorsMixin):
    """Array-like access to rows in the store by an index, a slice or an index array. Rows are read lazily.

    There is one copy of the rows on disk, whatever the order or subset of the pictures. Half-precision rows are read as
    float32. ``numpy.asarray`` loads all rows into memory.
    """

    def __init__(self, mapped: np.ndarray, row_N: np.ndarray, dtype: str) -> None:
        self._mapped, self._row_N, self._disk_dtype = mapped, row_N, dtype
        half = dtype == BF16 or mapped.dtype == np.float16
        self.dtype = np.dtype(np.float32) if half else mapped.dtype
        self.shape = (len(row_N), *mapped.shape[1:])
        self.ndim = len(self.shape)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize  # if loaded into memory

    def __len__(self) -> int:
        return len(self._row_N)

    def __getitem__(self, chosen: Any) -> np.ndarray:
        """Reads rows into newly allocated memory. In a tuple, the first index selects rows."""
        if isinstance(chosen, tuple):
            rows = self[chosen[0]]
            return rows[chosen[1:] if rows.ndim < self.ndim else (slice(None), *chosen[1:])]
        row_M = self._row_N[chosen if isinstance(chosen, slice) else np.asarray(chosen)]
        rows = unpack(np.asarray(self._mapped[np.atleast_1d(row_M)]), self._disk_dtype)
        return rows.reshape(*row_M.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        """Applies an operator after loading all rows."""
        arrays = [np.asarray(given) if isinstance(given, StoredRows) else given for given in inputs]
        return getattr(ufunc, method)(*arrays, **settings)
