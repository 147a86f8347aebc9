"""Reads the features of any number of pictures, on demand, from a folder of ``.npy`` or ``.safetensors`` files.

    FOLDER/0001.npy, FOLDER/0002.safetensors, …   N×D each, float16, bfloat16 (safetensors) or float32

Rows are numbered consecutively over the files, which are ordered by name. `tellapart.bags.feature_ids` reads their ids.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import UsageError
from tellapart.features.packed_rows import BF16, unpack

ROWS_PER_BLOCK = 8192  # number of rows compared at a time
FEATURE_SUFFIXES = (".npy", ".safetensors")
_TENSOR_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BF16}


@dataclass(frozen=True)
class FeatureFile:
    """One file: the position, shape and dtype of its matrix. ``kept``: the rows to use; None uses all rows."""

    path: Path
    rows: int
    width: int
    dtype: str
    offset: int
    kept: np.ndarray | None = None

    def read(self, row_M: np.ndarray | slice) -> np.ndarray:
        """Reads some rows as float32, M×D. Slices and ascending row numbers are read sequentially."""
        disk = np.dtype(np.uint16) if self.dtype == BF16 else np.dtype(self.dtype)
        stored = self.rows if self.kept is None else int(self.kept[-1]) + 1
        matrix = np.memmap(self.path, disk, "c", self.offset, (stored, self.width))
        chosen = row_M if self.kept is None else self.kept[row_M]
        rows_MD: np.ndarray = unpack(np.asarray(matrix[chosen]), self.dtype).astype(np.float32, copy=False)
        return rows_MD


@dataclass(frozen=True)
class FeatureShards:
    """All files in a folder. ``first_S``: each file's first row number, followed by the total number of rows."""

    folder: Path
    shards: tuple[FeatureFile, ...]

    @classmethod
    def open(cls, folder: Path) -> FeatureShards:
        """Opens a folder. Raises `UsageError` if it contains no files, or files that are not matrices of the same
        width.
        """
        paths = sorted(p for p in folder.iterdir() if p.suffix in FEATURE_SUFFIXES) if folder.is_dir() else []
        if not paths:
            raise UsageError(f"{folder} contains no features; expected .npy or .safetensors files of shape N×D")
        shards = tuple(shard for shard in map(_opened, paths) if shard.rows)
        if widths := {shard.width: shard.path.name for shard in shards}:
            if len(widths) > 1:
                listed = ", ".join(f"{width} ({name})" for width, name in widths.items())
                raise UsageError(f"{folder}: all files must have the same feature dimension, got {listed}")
            return cls(folder, shards)
        raise UsageError(f"{folder}: the files contain no rows")

    def __len__(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def width(self) -> int:
        """The feature dimension D."""
        return self.shards[0].width

    @property
    def first_S(self) -> list[int]:
        return list(itertools.accumulate((shard.rows for shard in self.shards), initial=0))

    def without_copies(self) -> tuple[FeatureShards, np.ndarray]:
        """Drops duplicate rows, keeping the first. Returns the features and the original indices of the remaining rows.

        Compares rows by a 128-bit hash, held in memory temporarily.
        """
        factor_D2 = np.random.default_rng(0).integers(0, 2**64, (self.width, 2), np.uint64) | np.uint64(1)
        sum_N2 = np.empty((len(self), 2), np.uint64)
        for first, shard in zip(self.first_S, self.shards, strict=False):
            for start in range(0, shard.rows, ROWS_PER_BLOCK):
                part = slice(start, min(start + ROWS_PER_BLOCK, shard.rows))
                bits_BD = np.ascontiguousarray(shard.read(part)).view(np.uint32).astype(np.uint64)
                sum_N2[first + part.start : first + part.stop] = bits_BD @ factor_D2
        order_N = np.lexsort((sum_N2[:, 1], sum_N2[:, 0]))  # stable, so that the first of equal rows comes first
        again_N = np.concatenate([[False], (sum_N2[order_N[1:]] == sum_N2[order_N[:-1]]).all(1)])
        row_N = np.sort(order_N[~again_N])
        if len(row_N) == len(self):
            return self, row_N
        cut = np.searchsorted(row_N, self.first_S)
        kept = [row_N[begin:end] - first for first, begin, end in zip(self.first_S, cut, cut[1:], strict=False)]
        shards = (replace(shard, rows=len(rows), kept=rows) for shard, rows in zip(self.shards, kept, strict=True))
        return FeatureShards(self.folder, tuple(shard for shard in shards if shard.rows)), row_N

    def digest(self) -> list[list[Any]]:
        """Returns the name, rows, size and time of each file, by which a job recognizes its features."""
        return [[s.path.name, s.rows, s.path.stat().st_size, s.path.stat().st_mtime_ns] for s in self.shards]


def _opened(path: Path) -> FeatureFile:
    try:
        shape, dtype, offset = _npy(path) if path.suffix == ".npy" else _safetensors(path)
    except Exception as error:  # NumPy raises many error types for damaged headers
        cause = " ".join(str(error).split())[:120]
        raise UsageError(f"{path} cannot be read as a matrix of features ({cause or type(error).__name__})") from None
    numbers = all(type(length) is int and 0 <= length < 2**60 for length in shape)
    if len(shape) != 2 or not numbers or not (dtype == BF16 or np.dtype(dtype).kind == "f"):
        raise UsageError(f"{path}: expected a floating-point matrix of shape N×D, got {dtype} of shape {tuple(shape)}")
    size = shape[0] * shape[1] * (2 if dtype == BF16 else np.dtype(dtype).itemsize)
    if path.stat().st_size < offset + size:
        raise UsageError(f"{path} is truncated ({path.stat().st_size:,} of {offset + size:,} bytes); copy it again")
    return FeatureFile(path, shape[0], shape[1], dtype, offset)


def _npy(path: Path) -> tuple[tuple[int, ...], str, int]:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
        if by_columns and min(shape, default=0) > 1:
            raise ValueError("the array is in Fortran order; save np.ascontiguousarray(features)")
        return shape, dtype.str, file.tell()


def _safetensors(path: Path) -> tuple[tuple[int, ...], str, int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > os.fstat(file.fileno()).st_size:
            raise ValueError("not a safetensors file")
        header = {name: of for name, of in json.loads(file.read(length)).items() if name != "__metadata__"}
    if len(header) != 1:
        raise ValueError(f"expected one tensor, got {len(header)}")
    (of,) = header.values()
    return tuple(of["shape"]), _TENSOR_TYPES.get(of["dtype"], "V1"), 8 + length + int(of["data_offsets"][0])
