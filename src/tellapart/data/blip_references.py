"""References in the form in which BLIP was trained on them."""

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
    """Returns an item with its references cleaned by `blip_clean`; drops those that become empty."""
    return replace(item, references=tuple(filter(None, map(blip_clean, item.references))))
