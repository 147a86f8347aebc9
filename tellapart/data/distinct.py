"""Pictures beside those of a test set: none of them twice, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from tellapart.errors import PictureError
from tellapart.types import Item


def beside(others: Iterable[Item], known: Iterable[Item]) -> list[Item]:
    """Those of ``others`` whose picture is none of ``known``, by content.

    Folders number their pictures from 0 again: another picture with an id of ``known`` gets one of its own, such as
    "7.jpg (2)".
    Pictures that cannot be read are kept, for who reads them to report.
    """
    known = list(known)
    pictures, taken = {_content(item) for item in known} - {None}, {item.id for item in known}
    found = []
    for item in others:
        if _content(item) in pictures:
            continue
        if item.id in taken:
            item = replace(item, id=next(name for n in count(2) if (name := f"{item.id} ({n})") not in taken))
        taken.add(item.id)
        found.append(item)
    return found


def _content(item: Item) -> str | None:
    try:
        return item.picture.key()
    except (PictureError, OSError):
        return None
