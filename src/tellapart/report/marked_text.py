"""Splits text into pieces, so that a page can mark words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A piece of text. ``why``: the reason why it is marked, or "" if it is not marked.

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
    wrong = [(*span, False) for span in false if 0 <= span[0] < span[1] <= len(text)]
    free = [(*span, True) for span in new if not any(span[0] < end and start < span[1] for start, end, *_ in wrong)]
    found, at = [], 0
    for start, end, why, is_new in sorted([*wrong, *free]):
        if at <= start < end <= len(text):
            found += [Piece(text[at:start]), Piece(text[start:end], why, is_new)]
            at = end
    return tuple(piece for piece in [*found, Piece(text[at:])] if piece.text)
