"""Handles judged captions that are also a reference of their picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tellapart.evaluation.human_judgements.judgements import RatedCaption

# The treatments, for signatures.
DROPPED = "captions-that-are-references:left-out"
TAKEN_OUT = "captions-that-are-references:out-of-their-references"


def without_reference_captions(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Drops captions that are identical to one of their picture's references (Flickr8k-Expert and -CF)."""
    return tuple(row for row in rows if _same(row.caption) not in {_same(text) for text in row.references})


def without_own_reference(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """Removes each caption from its own references (Composite, THumB, FOIL).

    Drops captions that have no other reference.
    """
    kept = [
        replace(row, references=tuple(text for text in row.references if _same(text) != _same(row.caption)))
        for row in rows
    ]
    return tuple(row for row in kept if row.references)


def _same(text: str) -> str:
    return " ".join(text.split()).rstrip(" .").lower()
