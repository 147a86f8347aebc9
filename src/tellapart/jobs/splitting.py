"""Splits a data set on disk into shards.

- Tar and Parquet files that contain pictures are used as shards directly.
- A JSON Lines file is split into byte ranges at line ends. Its lines are not parsed.
- For other data sets whose pictures are files, each shard's items are written to a list (JSON Lines), so that a worker
  reads only its own items.
- Other data sets, whose pictures are not files (such as `scenes`), are split into ranges of items, and a worker opens
  the whole data set.

Paths are absolute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.data import Dataset, open_data
from tellapart.data.file_patterns import expand_pattern, natural_key
from tellapart.data.options import Options
from tellapart.data.reader import READERS
from tellapart.data.readers.parquet import holds_pictures
from tellapart.data.specification import parse
from tellapart.errors import UsageError
from tellapart.jobs.item_lists import ItemLists
from tellapart.jobs.shard import PACKED, Shard

CHUNK_BYTES = 1 << 20
KEYS_OF_ALL_FILES = ("ids", "part", "limit")  # keys whose values count items over all files


def shards_on_disk(
    spec: str, prefix: str, own_id: str, lists: ItemLists, shard_items: int, notes: list[str]
) -> Iterator[Shard]:
    """Yields the shards of a data set. Adds lines for the user to ``notes``.

    prefix: text to put before each id.
    own_id: the id of a data set that is a single picture; "" keeps the ids of the data set.
    """
    kind, path, options = parse(spec)
    READERS[kind]  # raises if the reader's extra is not installed
    base = Shard(0, "", kind, without_split(options), prefix=prefix, splits=tuple(sorted(options.splits)))
    files: list[Path] | None = None
    if not any(options.text(key) for key in KEYS_OF_ALL_FILES):
        if kind in PACKED:
            files = _files(kind, path, options)
        elif kind == "jsonl" and path.suffix.lower() != ".json" and not options.text("bytes"):
            files = [path]
    if files is None:
        dataset = open_data(spec)
        notes += dataset.report()
        if own_id:
            dataset = Dataset(spec, [replace(item, id=own_id) for item in dataset], dataset.missing)
        yield from lists.add(dataset, base, options)
        return
    yield from lists.finish()
    for file in files:
        if kind == "jsonl" and not file.is_file():
            raise UsageError(f"{path}: no such file")
        status = file.stat() if file.is_file() else None
        size, version = (status.st_size, str(status.st_mtime_ns)) if status else (0, "")
        whole = replace(base, path=str(file.absolute()), size=size, version=version)
        yield from file_shards(whole, shard_items, partial(file.open, "rb"))


def file_shards(whole: Shard, shard_items: int, open_file: Callable[[], Any]) -> Iterator[Shard]:
    """Yields a tar or Parquet file as a single shard, and a JSON Lines file as shards of ``shard_items`` lines."""
    if whole.kind != "jsonl":
        yield whole
        return
    with open_file() as file:
        for start, stop, lines in cut_lines(iter(partial(file.read, CHUNK_BYTES), b""), shard_items):
            yield replace(whole, span=(start, stop), count=lines, size=stop - start)


def _files(kind: str, path: Path, options: Options) -> list[Path] | None:
    """Returns the tar or Parquet files in the order in which the reader visits them, or None if the pictures are stored
    outside the files.
    """
    suffix = ".tar" if kind == "webdataset" else ".parquet"
    if path.is_dir():
        paths = path.glob("*.tar") if kind == "webdataset" else path.rglob("*.parquet")
        files = sorted(paths, key=lambda file: natural_key(file.name if kind == "webdataset" else str(file)))
    else:
        files = expand_pattern(path)
    if not files:
        raise UsageError(f"{path}: this folder contains no *{suffix} file")
    return files if kind == "webdataset" or holds_pictures(files, options) else None


def cut_lines(chunks: Iterator[bytes], lines: int) -> Iterator[tuple[int, int, int]]:
    """Splits a text that is read in chunks into runs of ``lines`` lines. Yields (first byte, end, number of lines) for
    each run.
    """

    start = done = seen = 0
    whole = True  # whether the last line ends with a line break
    for chunk in chunks:
        ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10)
        taken = 0
        while len(ends) - taken >= lines - seen:
            taken += lines - seen
            stop = done + int(ends[taken - 1]) + 1
            yield start, stop, lines
            start, seen = stop, 0
        seen += len(ends) - taken
        done, whole = done + len(chunk), chunk.endswith(b"\n")
    if done > start:
        yield start, done, seen + (not whole)


def without_split(options: Options) -> dict[str, str]:
    """Returns a shard's options: the data set's options without ``split``, and with ``images`` as an absolute path."""
    values = {key: value for key, value in options.values.items() if key != "split"}
    if "images" in values:
        values["images"] = str(Path(values["images"]).expanduser().absolute())
    return values
