"""Prepares a caption's words for display with two bars: one for a word's worth, one for the belief in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.report.number_text import format_number


@dataclass(frozen=True)
class JudgedWord:
    """A content word with its two bars. ``worth`` and ``belief`` are text, and the widths of the bars are in percent.

    against: whether the word's worth is negative, because it describes a look-alike.
    """

    text: str
    worth: str
    worth_width: float
    against: bool
    belief: str
    belief_width: float


MOST_NATS = 3.0  # the worth at which a bar has its full length, which is the maximum reward for a word


def judged_words(text: str, found: Iterable[tuple[int, int, float, float]]) -> tuple[JudgedWord, ...]:
    """Returns the words at the given spans, in order. Ignores spans outside ``text`` and values that are not finite."""
    words = []
    for start, end, worth, belief in sorted(found):
        if 0 <= start < end <= len(text) and math.isfinite(worth) and math.isfinite(belief):
            belief = min(max(belief, 0.0), 1.0)
            width = 100 * min(abs(worth) / MOST_NATS, 1.0)
            shown = format_number(worth, 1, signed=True)
            words.append(
                JudgedWord(text[start:end], shown, width, worth < 0, format_number(100 * belief, 0), 100 * belief)
            )
    return tuple(words)
