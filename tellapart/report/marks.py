"""A text in pieces, so that a page can mark some of its words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
