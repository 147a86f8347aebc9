"""A shard of a manifest as a data set, in a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory

from tellapart.data import Dataset, open_data
from tellapart.data.base import Options
from tellapart.data.dataset import select_items
from tellapart.data.images.pictures import StoredPicture
from tellapart.data.registry import READERS
from tellapart.errors import PictureError
from tellapart.jobs.manifest import Shard
from tellapart.jobs.storage import Folder, file_system, is_url, url_errors

PACKED = ("webdataset", "parquet")  # a file of these holds the pictures
SIGNATURE, KEY = methodcaller("signature"), methodcaller("key")


@contextmanager
def open_shard(shard: Shard, folder: Folder) -> Iterator[Dataset]:
    """The items of a shard, for as long as the block runs: what was fetched for it is then removed.

    Raises `UsageError` for a file that is not there or not what it was.
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


def pictures_of(shard: Shard, dataset: Dataset) -> dict[str, str]:
    """What tells later whether pictures on disk were replaced: a digest of ids, sizes and times, and one of ids and
    contents. Nothing for tars and Parquet files: the shard has their version."""
    if shard.kind in PACKED:
        return {}
    return {"signatures": _digest(dataset, SIGNATURE), "contents": _digest(dataset, KEY)}


def pictures_changed(shard: Shard, folder: Folder, known: Mapping[str, str]) -> bool:
    """Whether pictures of a shard have another content than when `pictures_of` gave what is ``known``.

    Files are read only where sizes or times are others.
    """
    if shard.kind in PACKED:
        return False
    with open_shard(shard, folder) as dataset:
        same = _digest(dataset, SIGNATURE) == known.get("signatures")
        return not same and _digest(dataset, KEY) != known.get("contents")


def _digest(dataset: Dataset, read: Callable[[StoredPicture], object]) -> str:
    """Of the ids of the pictures that lie on disk, and of what is read of each; None for what cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    for item in dataset:
        if isinstance(item.picture, StoredPicture):
            try:
                found = read(item.picture)
            except PictureError:
                found = None
            digest.update(f"{item.id}\0{found}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _opened(shard: Shard, folder: Folder, scratch: Path) -> Dataset:
    if shard.items is not None:
        return _whole(shard.path)[slice(*shard.items)]
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
    """A data set that is opened whole, kept for the next shard of it."""
    return open_data(spec)


def _fetched(shard: Shard, scratch: Path) -> Path:
    """The shard's file, or its lines, as a local file of the same name."""
    fs, root = file_system(shard.path)
    target = scratch / Path(root).name
    with url_errors(shard.path):
        if shard.span is None:
            fs.get_file(root, str(target))
        else:
            target.write_bytes(fs.cat_file(root, start=shard.span[0], end=shard.span[1]))
    return target
