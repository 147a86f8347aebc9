"""Refuses items with equal ids, or merges those of one picture into one item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.listed_names import few


def check_unique_ids(items: Iterable[Item], where: str) -> None:
    """Raises a `UsageError` that lists duplicate ids; its message begins with ``where``."""
    double = [id_ for id_, count in Counter(item.id for item in items).items() if count > 1]
    if double:
        some = few(map(repr, double), 5)
        raise UsageError(f"{where}: {len(double):,} ids occur more than once: {some}; ids must be unique")


def merged(items: Sequence[Item], where: str) -> Item:
    """Merges the items of one picture, given several times with the same id, into one item with all its captions.

    Raises a `UsageError` whose message begins with ``where`` if they are different pictures.
    """
    first, *others = items
    for other in others:
        if other.picture.name != first.picture.name:
            raise UsageError(
                f"{where}: {first.picture.name} and {other.picture.name} have the same id {first.id!r}; ids must be "
                "unique"
            )
    return replace(first, references=tuple(text for item in items for text in item.references)) if others else first
