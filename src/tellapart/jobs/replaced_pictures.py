"""Detects that a shard's pictures have been replaced since its result was computed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from operator import methodcaller

from tellapart.data import Dataset
from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError
from tellapart.jobs.shard import PACKED, Shard, open_shard
from tellapart.jobs.storage import Folder

SIGNATURE, KEY = methodcaller("signature"), methodcaller("key")


def pictures_of(shard: Shard, dataset: Dataset) -> dict[str, str]:
    """Returns digests that reveal whether pictures on disk have been replaced.

    One digest covers ids, sizes and modification times; the other covers ids and contents.

    Returns {} for tar and Parquet files, because the shard records their version.
    """
    if shard.kind in PACKED:
        return {}
    return {"signatures": _digest(dataset, SIGNATURE), "contents": _digest(dataset, KEY)}


def pictures_changed(shard: Shard, folder: Folder, known: Mapping[str, str]) -> bool:
    """Returns whether a shard's pictures have changed since `pictures_of` returned ``known``.

    Reads the picture files only if sizes or modification times differ.
    """
    if shard.kind in PACKED:
        return False
    with open_shard(shard, folder) as dataset:
        same = _digest(dataset, SIGNATURE) == known.get("signatures")
        return not same and _digest(dataset, KEY) != known.get("contents")


def _digest(dataset: Dataset, read: Callable[[StoredPicture], object]) -> str:
    """Hashes, for each picture on disk, its id and what ``read`` returns (None if the picture cannot be read)."""
    digest = hashlib.blake2b(digest_size=16)
    for item in dataset:
        if isinstance(item.picture, StoredPicture):
            try:
                content = read(item.picture)
            except PictureError:
                content = None
            digest.update(f"{item.id}\0{content}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()
