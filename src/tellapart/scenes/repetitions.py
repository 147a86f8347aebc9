"""Repetitions in a caption: of words, of mentions, of grounds and relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parser import Mention, ParsedCaption
from .vocabulary import FIELDS

if TYPE_CHECKING:
    from .world import Scene


def count_repetitions(parsed: ParsedCaption, scene: Scene) -> int:
    """Repeats of a run of words, mentions beyond the objects that fit them, and repeated grounds and relations."""
    total = len(parsed.grounds) - len(set(parsed.grounds)) + len(parsed.relations) - len(set(parsed.relations))
    times_mentioned: dict[object, int] = {}
    for mention in parsed.mentions:
        times_mentioned[mention.signature()] = times_mentioned.get(mention.signature(), 0) + 1
    for mention in parsed.mentions:
        times = times_mentioned.pop(mention.signature(), 0)
        if times > 1:
            total += max(0, times - max(1, sum(_fits(mention, facts) for facts in scene.facts)))
    return total + _repeated_runs(parsed.words)


def _fits(mention: Mention, facts: tuple[str, ...]) -> bool:
    return (not mention.shape or mention.shape == facts[0]) and all(
        values == (facts[FIELDS.index(slot)],) for slot, values in mention.values.items()
    )


def _repeated_runs(words: tuple[str, ...]) -> int:
    """How often a run of words comes twice in a row ("on grass on grass" once)."""
    total, at, end = 0, 0, len(words)
    while at < end - 1:
        longest = (end - at) // 2
        again = next((n for n in range(1, longest + 1) if words[at : at + n] == words[at + n : at + 2 * n]), 0)
        total += bool(again)
        at += again or 1
    return total
