"""Splits texts into pieces so that a page can mark words, and computes bars for the worth of each word."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.report.shown import format_number


@dataclass(frozen=True)
class Piece:
    """A piece of a text. ``why``: the reason for its mark; "" if it is not marked.

    ``new``: True if the words are not known to be false but occur in no source.
    """

    text: str
    why: str = ""
    new: bool = False


Span = tuple[int, int, str]  # start, end, why


def pieces(text: str, false: Iterable[Span], new: Iterable[Span] = ()) -> tuple[Piece, ...]:
    """Splits ``text`` at spans (character offsets). Ignores spans that overlap an earlier one or lie outside the text.

    Words that are both false and new are marked as false.
    """
    wrong = [(start, end, why) for start, end, why in false if 0 <= start < end <= len(text)]
    free = [span for span in new if not any(span[0] < end and start < span[1] for start, end, _ in wrong)]
    found, at = [], 0
    for start, end, why, is_new in sorted([*((*span, False) for span in wrong), *((*span, True) for span in free)]):
        if at <= start < end <= len(text):
            found += [Piece(text[at:start]), Piece(text[start:end], why, is_new)]
            at = end
    return tuple(piece for piece in [*found, Piece(text[at:])] if piece.text)


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
