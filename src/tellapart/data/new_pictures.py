"""Finds the pictures in one data set whose content does not occur in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import count

from tellapart.data.pictures import FilePicture
from tellapart.errors import PictureError
from tellapart.types import Item


def beside(others: Iterable[Item], known: Iterable[Item]) -> list[Item]:
    """Returns the ``others`` whose content does not occur in ``known``.

    Reads only files whose sizes are equal or unknown.

    Different folders can use the same ids, so a new picture whose id occurs in ``known`` is renamed, e.g. to "7.jpg
    (2)". Unreadable pictures are kept, so that they are reported when they are read.
    """
    same_size: defaultdict[int | None, list[Item]] = defaultdict(list)
    taken = set()
    for item in known:
        same_size[_size(item)].append(item)
        taken.add(item.id)

    @cache
    def contents(size: int | None) -> set[str | None]:
        return {_content(item) for item in same_size[size]} - {None}

    found = []
    for item in others:
        size = _size(item)
        sizes = list(same_size) if size is None else [one for one in (size, None) if one in same_size]
        if sizes and any(_content(item) in contents(one) for one in sizes):
            continue
        if item.id in taken:
            item = replace(item, id=next(name for n in count(2) if (name := f"{item.id} ({n})") not in taken))
        taken.add(item.id)
        found.append(item)
    return found


def _size(item: Item) -> int | None:
    """Returns the size of a picture file in bytes, or None if it is not known without reading the picture."""
    try:
        return item.picture.signature()[0] if isinstance(item.picture, FilePicture) else None
    except (PictureError, OSError):
        return None


def _content(item: Item) -> str | None:
    try:
        return item.picture.key()
    except (PictureError, OSError):
        return None
