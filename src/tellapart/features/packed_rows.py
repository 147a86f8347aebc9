"""The format of rows on disk: the smallest lossless type of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BF16 = "bfloat16"  # NumPy lacks this type, so rows are stored as the upper halves of float32 numbers


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Returns the size of one row on disk, in bytes."""
    return int(np.prod(shape, dtype=np.int64)) * (2 if dtype == BF16 else np.dtype(dtype).itemsize)


def dtype_name(dtype: str) -> str:
    """Returns a readable name for a dtype on disk."""
    return dtype if dtype == BF16 else np.dtype(dtype).name


def pack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Converts rows to the format that is stored on disk."""
    rows = np.ascontiguousarray(rows)
    if dtype == BF16:
        upper: np.ndarray = (rows.astype(np.float32, copy=False).view(np.uint32) >> 16).astype(np.uint16)
        return upper
    return rows.astype(np.dtype(dtype), copy=False)


def unpack(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Converts rows from the format that is stored on disk. Half precision becomes float32."""
    if dtype == BF16:
        floats: np.ndarray = (rows.astype(np.uint32) << 16).view(np.float32)
        return floats
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def smallest_dtype(rows: np.ndarray, precision: str) -> str:
    """Returns the smallest dtype that stores float32 rows without loss, if the model that computed them runs in
    ``precision``.
    """
    small = {"bf16": BF16, "fp16": np.dtype(np.float16).str}.get(precision)
    if small is None or rows.dtype != np.float32 or not rows.size:
        return str(rows.dtype.str)
    with np.errstate(over="ignore"):
        return small if np.array_equal(unpack(pack(rows, small), small), rows) else str(rows.dtype.str)
