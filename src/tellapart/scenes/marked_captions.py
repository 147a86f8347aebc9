"""Marks the words in a caption that make false claims about its scene, each with the reason why the claim is false."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tellapart.scenes.checked_claims import checked_claims
from tellapart.scenes.parser import parse_caption, word_spans
from tellapart.scenes.world import Scene


@dataclass(frozen=True, slots=True)
class MarkedCaption:
    """The number of a caption's claims, and how many of them are ``correct``.

    ``false`` contains (start, end, reason) for the words that make false claims, in characters and in ascending order.
    """

    claims: int
    correct: int
    false: tuple[tuple[int, int, str], ...]


def mark_caption(caption: str, scene: Scene) -> MarkedCaption:
    """Marks the words that make false claims in a caption, (`checked_claims`). Never raises."""
    claims, where = checked_claims(parse_caption(caption), scene), word_spans(caption)
    why: dict[int, str] = {}
    for claim in claims:
        for word in itertools.chain(*claim.words) if claim.why else ():
            why.setdefault(word, claim.why)
    found: list[tuple[int, int, str]] = []
    for word in sorted(why):
        start, end = where[word]
        if found and word - 1 in why and found[-1][2] == why[word]:  # merges adjacent words into one span
            found[-1] = (found[-1][0], end, why[word])
        else:
            found.append((start, end, why[word]))
    return MarkedCaption(len(claims), sum(not claim.why for claim in claims), tuple(found))
