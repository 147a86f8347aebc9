"""Splits data sets that cannot be split by file: into lists of items, or ranges of item numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tellapart.data import Dataset
from tellapart.data.options import Options
from tellapart.data.pictures import FilePicture
from tellapart.jobs.shard import Shard
from tellapart.types import Item


class ItemLists:
    """Collects items into shards: items with picture files into one list per shard, other items into ranges of their
    data set.
    """

    def __init__(self, scratch: Path, shard_items: int) -> None:
        self._scratch, self._size = scratch, shard_items
        self._lines: list[str] = []
        self._written = 0

    def add(self, dataset: Dataset, base: Shard, options: Options) -> Iterator[Shard]:
        """Yields the shards that these items fill."""
        for start in range(0, len(dataset), self._size):
            stop = min(start + self._size, len(dataset))
            lines = [_line(item, base.prefix) for item in dataset[start:stop]]
            whole = [line for line in lines if line is not None]
            if len(whole) < len(lines):
                yield from self.finish()
                yield replace(base, path=options.spec, kind="", options={}, items=(start, stop), count=stop - start,
                              splits=())  # fmt: skip
                continue
            for line in whole:
                self._lines.append(line)
                if len(self._lines) == self._size:
                    yield from self.finish()

    def finish(self) -> Iterator[Shard]:
        """Yields the current list as a shard. It can be shorter than the others, for example before a file, because
        shards are in the order of the data.
        """
        if not self._lines:
            return
        name = f"lists/{self._written:06d}.jsonl"
        content = "".join(self._lines).encode()
        (self._scratch / "lists").mkdir(exist_ok=True)
        (self._scratch / name).write_bytes(content)
        count, self._lines, self._written = len(self._lines), [], self._written + 1
        yield Shard(0, name, "jsonl", listed=True, count=count, size=len(content))


def _line(item: Item, prefix: str) -> str | None:
    """Formats an item as a line for the ``jsonl:`` reader. Returns None if a line cannot represent the item."""
    if not isinstance(item.picture, FilePicture) or item.truth is not None:
        return None
    record: dict[str, Any] = {"id": f"{prefix}/{item.id}" if prefix else item.id}
    record["image"] = str(item.picture.path.absolute())
    record |= {"captions": list(item.references)} if item.references else {}
    record |= {"split": item.split} if item.split else {}
    try:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        line.encode()
    except UnicodeEncodeError:  # the file name is not valid text
        return None
    return line
