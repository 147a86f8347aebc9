"""Cleans references in the same way as BLIP's training code."""

from __future__ import annotations

from dataclasses import replace

from tellapart.types import Item

_BLIP_MARKS = str.maketrans(dict.fromkeys('.!"()*#:;~', " "))
BLIP_WORDS = 30


def blip_clean(text: str) -> str:
    """Formats a reference for BLIP (``pre_caption`` in its code): lower case, without ``.!"()*#:;~``, at most 30
    words."""
    return " ".join(text.lower().translate(_BLIP_MARKS).split()[:BLIP_WORDS])


def blip_cleaned(item: Item) -> Item:
    """Returns an item with its references cleaned by `blip_clean`. Drops references that become empty."""
    return replace(item, references=tuple(filter(None, map(blip_clean, item.references))))
