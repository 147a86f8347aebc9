"""Reads the ids of the rows of a folder's features from the ``.txt`` lists beside the files, on demand.

``FOLDER/0001.txt`` contains the ids of the rows of 0001.npy or 0001.safetensors, one per line. Without this file, the
ids are row numbers.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from tellapart.bags.feature_shards import FeatureFile, FeatureShards
from tellapart.errors import UsageError

OPEN_LISTS = 64  # maximum number of id lists open at a time


class Ids:
    """Reads the id of any row from its file's list on demand. Needs eight bytes of memory per row."""

    def __init__(self, features: FeatureShards, begin_SN: list[np.ndarray | None]) -> None:
        self._features, self._first_S, self._begin_SN = features, np.array(features.first_S), begin_SN
        self._text = lru_cache(maxsize=OPEN_LISTS)(_text)

    @classmethod
    def open(cls, features: FeatureShards) -> Ids:
        """Opens and checks the lists of ids.

        Raises `UsageError` for a list that has the wrong length or is not UTF-8, and for an empty or duplicate id."""
        ids = cls(features, [_begins(shard) for shard in features.shards])
        if any(begin_N is not None for begin_N in ids._begin_SN):
            _check_distinct(ids, len(features))
        return ids

    def __getitem__(self, row: int) -> str:
        shard = int(np.searchsorted(self._first_S, row, side="right")) - 1
        if (begin_N := self._begin_SN[shard]) is None:
            return str(row)
        at = row - int(self._first_S[shard])
        line = self._text(_list(self._features.shards[shard]))[begin_N[at] : begin_N[at + 1]]
        return line.decode("utf-8").rstrip("\r\n")


def _check_distinct(ids: Ids, count: int) -> None:
    """Raises `UsageError` for an empty or duplicate id, because a file of bags with such ids could not be read."""
    expected = "expected a unique id for each picture in the lists of ids (.txt)"

    def hashes() -> Iterator[int]:
        for row in range(count):
            if not (text := ids[row]):
                raise UsageError(f"row {row:,} of the features has an empty id; {expected}")
            yield hash(text)

    hash_N = np.fromiter(hashes(), np.int64, count)  # eight bytes per picture, temporarily
    order_N = np.argsort(hash_N, kind="stable")
    equal_N = np.flatnonzero(np.diff(hash_N[order_N]) == 0)
    for first, second in zip(order_N[equal_N].tolist(), order_N[equal_N + 1].tolist(), strict=True):
        if ids[first] == ids[second]:
            raise UsageError(
                f"rows {first:,} and {second:,} of the features have the same id '{ids[first]}'; {expected}"
            )


def _list(shard: FeatureFile) -> Path:
    """Returns the path of a file's list of ids."""
    return shard.path.with_suffix(".txt")


def _text(path: Path) -> mmap.mmap | bytes:
    if not path.stat().st_size:
        return b""  # an empty file cannot be mapped
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _begins(shard: FeatureFile) -> np.ndarray | None:
    """Returns the offset of each line in a file's list, followed by the end, or None if there is no list."""
    path = _list(shard)
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8") as file:
            while file.read(2**20):
                pass
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not valid UTF-8 ({error.reason} at byte {error.start:,}); expected one id per line"
        ) from None
    text = _text(path)
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    if len(text) and (not len(ends) or ends[-1] != len(text)):
        ends = np.append(ends, len(text))
    if len(ends) != shard.rows:
        raise UsageError(
            f"{path} has {len(ends):,} ids, but {shard.path.name} has {shard.rows:,} rows; expected one id per row"
        )
    return np.concatenate([[0], ends])
