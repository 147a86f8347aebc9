"""A text in pieces, so that a page can mark some of its words, and bars that say what each word is worth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tellapart.report.shown import number


@dataclass(frozen=True)
class Piece:
    """Some characters of a text; ``why`` says why they are marked, and is empty where they are not.

    ``new`` words are not known to be false: no source says them.
    """

    text: str
    why: str = ""
    new: bool = False


Span = tuple[int, int, str]  # start, end, why


def pieces(text: str, false: Iterable[Span], new: Iterable[Span] = ()) -> tuple[Piece, ...]:
    """``text`` cut at spans in characters; one that lies outside it or overlaps another is left unmarked.

    Where a word is false and new, it is marked as false.
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
    """A content word with its bars: ``worth`` and ``belief`` as text, widths in percent.

    ``against``: the word is worth less than nothing, it tells of a look-alike.
    """

    text: str
    worth: str
    worth_width: float
    against: bool
    belief: str
    belief_width: float


MOST_NATS = 3.0  # of worth, that the longest bar shows: the limit of a paid word


def judged_words(text: str, found: Iterable[tuple[int, int, float, float]]) -> tuple[JudgedWord, ...]:
    """The words at spans of ``text`` that lie inside it, in their order."""
    words = []
    for start, end, worth, belief in sorted(found):
        if 0 <= start < end <= len(text) and math.isfinite(worth) and math.isfinite(belief):
            belief = min(max(belief, 0.0), 1.0)
            width = 100 * min(abs(worth) / MOST_NATS, 1.0)
            shown = number(worth, 1, signed=True)
            words.append(JudgedWord(text[start:end], shown, width, worth < 0, number(100 * belief, 0), 100 * belief))
    return tuple(words)
