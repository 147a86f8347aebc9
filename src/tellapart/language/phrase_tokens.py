"""Splits a caption's tokens into phrases, without a tagger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.language.english_words import NUMBERS, SOFT_DETERMINERS, SOFT_PREPOSITIONS, TOKEN
from tellapart.language.words import Word


@dataclass
class Token:
    """A word or a run of punctuation. ``kind`` is the kind of content word, or "" for other tokens."""

    text: str
    kind: str = ""
    doubted: bool = False  # only for content words
    start: int = -1  # position in the caption, in characters, or -1 if unknown
    end: int = -1

    @property
    def lower(self) -> str:
        return self.text.lower()


def caption_tokens(caption: str, words: Sequence[Word], doubted: Sequence[bool]) -> list[Token]:
    """Splits a caption into tokens. ``doubted``: whether each of its content words, ``words``, is doubted."""
    known = {word.start: (word.kind, doubt) for word, doubt in zip(words, doubted, strict=True)}
    return [Token(match[0], *known.get(match.start(), ("", False)), *match.span()) for match in TOKEN.finditer(caption)]


def split_phrases(tokens: list[Token]) -> list[list[Token]]:
    """Splits tokens into phrases. A new phrase begins before a preposition, "and", a comma, or a verb with an
    object.
    """
    phrases: list[list[Token]] = [[]]
    for place, token in enumerate(tokens):
        has_object = place + 1 < len(tokens) and tokens[place + 1].lower in SOFT_DETERMINERS | NUMBERS
        joins = token.lower in ("and", "or", ",")
        begins = joins or token.lower in SOFT_PREPOSITIONS or (token.kind == "verb" and has_object)
        follows_one = bool(phrases[-1]) and any(each.kind for each in phrases[-1])
        if begins and follows_one:
            phrases.append([])
        phrases[-1].append(token)
    return phrases
