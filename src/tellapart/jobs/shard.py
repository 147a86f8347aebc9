"""A shard: some items of a data set, and the reader that opens them in a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.data import Dataset, open_data
from tellapart.data.dataset import select_items
from tellapart.data.options import Options
from tellapart.data.reader import READERS
from tellapart.jobs.file_systems import file_system, url_errors
from tellapart.jobs.storage import Folder
from tellapart.utils.urls import is_url


@dataclass(frozen=True, slots=True)
class Shard:
    """Some items of a data set; `open_shard` opens them.

    kind, path, options: as in `tellapart.data`, but without ``split``.
    listed: whether ``path`` is a list of items in the job's folder.
    span: the byte range in a JSON Lines file.
    items: the range of item numbers in the data set.
    prefix: the text to put before each id.
    splits: the splits to keep.
    count: the number of items (an upper bound if items are lines), or None if unknown.
    size: the size in bytes.
    version: the file's version. A changed file makes the job a different job.
    """

    number: int
    path: str
    kind: str = ""
    options: dict[str, str] = field(default_factory=dict)
    listed: bool = False
    span: tuple[int, int] | None = None
    items: tuple[int, int] | None = None
    prefix: str = ""
    splits: tuple[str, ...] = ()
    count: int | None = None
    size: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        """The name used in messages."""
        if self.span is not None:
            return f"{self.path}, bytes {self.span[0]:,} to {self.span[1]:,}"
        return f"{self.path}, items {self.items[0]:,} to {self.items[1]:,}" if self.items is not None else self.path

    def to_json(self) -> dict[str, Any]:
        """Returns the shard's manifest entry, which contains the fields that differ from their defaults."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "", (), {}, False)} | {
            "number": self.number
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Shard:
        """Creates a shard from its manifest entry."""
        pairs: dict[str, Any] = {key: tuple(value[key]) for key in ("span", "items", "splits") if key in value}
        return cls(**{**value, **pairs})


PACKED = ("webdataset", "parquet")  # these files contain the pictures


@contextmanager
def open_shard(shard: Shard, folder: Folder) -> Iterator[Dataset]:
    """Opens a shard's items. Downloaded files are removed at the end of the block.

    Raises `UsageError` if a file is missing or has changed.
    """
    with TemporaryDirectory(prefix="tellapart-shard-") as scratch:
        dataset = _opened(shard, folder, Path(scratch))
        if shard.splits:
            kept = [number for number, item in enumerate(dataset) if item.split in shard.splits]
            dataset = Dataset(dataset.spec, select_items(dataset, kept), dataset.missing)
        if shard.prefix and not shard.listed:
            named = [replace(item, id=f"{shard.prefix}/{item.id}") for item in dataset]
            dataset = Dataset(dataset.spec, named, dataset.missing)
        yield dataset


def _opened(shard: Shard, folder: Folder, scratch: Path) -> Dataset:
    if shard.items is not None:  # missing items belong to no shard, and were reported when the job was planned
        whole = _whole(shard.path)
        return Dataset(whole.spec, select_items(whole, range(*shard.items)))
    options = dict(shard.options)
    if shard.listed:
        path = folder.local(shard.path, scratch)
    elif is_url(shard.path):
        path = _fetched(shard, scratch)
    else:
        path = Path(shard.path)
        if shard.span is not None:
            options["bytes"] = f"{shard.span[0]}-{shard.span[1]}"
    items, missing = READERS[shard.kind].read(path, Options(shard.name, options))
    return Dataset(shard.name, items, missing)


@lru_cache(maxsize=1)
def _whole(spec: str) -> Dataset:
    """Opens a whole data set, and caches it for the data set's next shard."""
    return open_data(spec)


def _fetched(shard: Shard, scratch: Path) -> Path:
    """Downloads the shard's file (or only its byte range) to a local file with the same name."""
    fs, root = file_system(shard.path)
    target = scratch / Path(root).name
    with url_errors(shard.path):
        if shard.span is None:
            fs.get_file(root, str(target))
        else:
            target.write_bytes(fs.cat_file(root, start=shard.span[0], end=shard.span[1]))
    return target
