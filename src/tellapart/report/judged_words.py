"""The words of a caption with bars for their worth and for the belief in them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.report.number_text import format_number


@dataclass(frozen=True)
class JudgedWord:
    """A content word with its bars: ``worth`` and ``belief`` as text, bar widths in percent.

    ``against``: whether its worth is negative, because it describes a look-alike.
    """

    text: str
    worth: str
    worth_width: float
    against: bool
    belief: str
    belief_width: float


MOST_NATS = 3.0  # the worth at which bars have their full length; the maximum reward for a word


def judged_words(text: str, found: Iterable[tuple[int, int, float, float]]) -> tuple[JudgedWord, ...]:
    """Returns the words at the spans that lie within ``text``, in order."""
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
