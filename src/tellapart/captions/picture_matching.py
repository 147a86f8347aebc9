"""Matches the rows of a log to pictures, including renamed ones."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from tellapart.captions.log_row import LogRow
from tellapart.captions.picture_record import PictureRecord
from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item

Row = TypeVar("Row")  # what identifies a row, such as an id


def match_pictures(
    items: Iterable[Item], rows: Mapping[str, LogRow], present: Collection[str], where: Path
) -> tuple[set[str], set[str]]:
    """Returns the ids of items that already have a caption (``present``), and of items whose picture has been replaced.

    A caption belongs to the item with the same id or, if there is no such item, to an item with the same picture,
    because a path can be spelled in several ways. Raises a `UsageError` that begins with ``where`` if the captions
    describe pictures in another folder that happen to have the same ids.
    """
    done, replaced, others, todo, ids = set[str](), set[str](), list[Item](), list[Item](), set[str]()
    for item in items:
        ids.add(item.id)
        if item.id not in present:
            todo.append(item)
            continue
        known = rows[item.id].picture if item.id in rows else None
        try:
            same = known is None or known.is_of(item.picture)
        except PictureError:  # reported when the picture is read
            same = True
        if same:
            done.add(item.id)
        elif known is not None and (now := PictureRecord.of(item.picture, "")) and now.place == known.place:
            replaced.add(item.id)
        else:
            others.append(item)
    if others:
        raise UsageError(
            f"{where} contains captions of other pictures with the same ids, such as '{others[0].id}' "
            f"({len(others):,} in total); specify another file with -o"
        )
    done |= set(renamed_ids(todo, {key: rows[key] for key in present if key in rows and key not in ids}).values())
    return done, replaced


def renamed_ids(items: Iterable[Item], rows: Mapping[Row, LogRow]) -> dict[Row, str]:
    """Maps rows that do not match any item by their id to the id of the first item with the same picture."""
    items = list(items)
    ids = {item.id for item in items}
    pictures = {row.picture: key for key, row in rows.items() if key not in ids and row.picture and row.picture.content}
    rest, sizes = {picture.content: key for picture, key in pictures.items()}, {picture.size for picture in pictures}
    found: dict[Row, str] = {}
    for item in items if rest else ():
        with contextlib.suppress(PictureError):
            size = item.picture.signature()[0] if isinstance(item.picture, StoredPicture) else 0
            if item.id not in rows and size in sizes and (content := item.picture.key()) in rest:
                found.setdefault(rest[content], item.id)
    return found
