"""A text in pieces, so that a page can mark some of its words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """Some characters of a text; ``why`` says why they are marked, and is empty where they are not."""

    text: str
    why: str = ""


def pieces(text: str, spans: Iterable[tuple[int, int, str]]) -> tuple[Piece, ...]:
    """``text`` cut at (start, end, why), which are in characters; what lies outside it or overlaps is left unmarked."""
    found, at = [], 0
    for start, end, why in sorted(spans):
        if at <= start < end <= len(text):
            found += [Piece(text[at:start]), Piece(text[start:end], why)]
            at = end
    return tuple(piece for piece in [*found, Piece(text[at:])] if piece.text)
