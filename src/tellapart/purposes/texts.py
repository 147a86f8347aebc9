"""Turns captions into texts: removes openings such as "The image shows" and limits the number of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tellapart.language.english_words import FUNCTION_WORDS
from tellapart.language.phrase_ends import phrase_ends
from tellapart.language.stock_phrases import without_opening
from tellapart.language.words import sentences

MAX_LISTED = 20  # maximum number of words, examples or pictures in a message


@dataclass(frozen=True)
class Edited:
    """A text made from a caption.

    text: "" if no text could be made.
    doubts: (kind, detail) for each edit that a person should check.
    long: a second, longer text; "" if there is none.
    accepted: whether a person accepted the text as it is. An accepted empty text marks a decorative picture.
    language: the language code; "" if unspecified.
    variation: what the picture's captions agree on (`tellapart.purposes.variation`); {} for one or two captions.
    """

    text: str
    doubts: tuple[tuple[str, str], ...] = ()
    long: str = ""
    accepted: bool = False
    language: str = ""
    variation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decorative(self) -> bool:
        """Returns whether a person marked the picture as needing no text."""
        return self.accepted and not self.text


def without_openings(text: str) -> tuple[str, str]:
    """Removes openings such as "The image shows" from all sentences. Returns the text and the first removed opening."""
    removed, kept = "", ""
    for sentence in (part for whole in sentences(text) for part in re.split(r"(?<=[。！？])", whole) if part):
        part, opening = without_opening(sentence)
        while opening:
            removed = removed or opening
            shorter, opening = without_opening(part)
            part = shorter
        if part:  # nothing is left of a sentence such as "Sure!"
            part = part[:1].upper() + part[1:] if part != sentence and sentence[:1].isupper() else part
            kept += part if not kept or kept[-1] in "。！？" else f" {part}"
    return kept or text, removed if kept else ""


def shortened(text: str, most: int, *, whole_phrases: bool = False, english: bool = True) -> tuple[str, str]:
    """Shortens the text to at most ``most`` characters.

    Keeps whole sentences if at least one fits. Otherwise keeps the longest beginning of the first sentence that ends
    with a phrase or, if no phrase fits, with a word that may end a text. Returns the text, and what it was cut after:
    "sentence", "phrase", "word", or "" if it is complete.

    Args:
        whole_phrases: never cut within a phrase, even if the first phrase is longer than ``most``.
        english: find phrases by English grammar; otherwise a phrase ends before a comma or a semicolon.
    """
    if len(text) <= most:
        return text, ""
    kept, parts = "", sentences(text)
    for part in parts:
        if len(longer := f"{kept} {part}".strip()) > most:
            break
        kept = longer
    if kept:
        return kept, "sentence"
    ends = phrase_ends(parts[0])[:-1] if english else [match.start() for match in re.finditer("[,;，、；]", parts[0])]
    if fitting := [end for end in ends if end <= most]:
        return parts[0][: fitting[-1]], "phrase"
    if whole_phrases:
        return parts[0][: ends[0]] if ends else parts[0], "phrase"
    words = parts[0][: most + 1].split()[:-1]
    while len(words) > 1 and words[-1].lower().strip(",;:-") in FUNCTION_WORDS:
        words.pop()
    return " ".join(words).rstrip(",;:- ") or parts[0][:most], "word"


def several(edited: Mapping[str, Edited]) -> dict[str, Edited]:
    """Joins the distinct texts of each picture, one per line. The keys are those of `LoraCaptions.edited`."""
    found: dict[str, Edited] = {}
    for key, one in edited.items():
        first = found.setdefault(key.partition("\n")[0], one)
        texts = dict.fromkeys(text for text in (*first.text.split("\n"), one.text) if text)
        doubts = () if texts and not first.text else first.doubts
        found[key.partition("\n")[0]] = replace(first, text="\n".join(texts), doubts=doubts)
    return found


def has_phrase(text: str, phrase: str) -> bool:
    """Returns whether a text contains a phrase as whole words, ignoring case."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


def without_text(edited: Mapping[str, Edited]) -> Iterator[str]:
    """Yields a line with the reason for each picture without a text, up to `MAX_LISTED` lines."""
    bad = [(key, one.doubts[0][1]) for key, one in edited.items() if not one.text]
    yield from (f"no text for {key}: the caption is {why}" for key, why in bad[:MAX_LISTED])
    if len(bad) > MAX_LISTED:
        yield f"no text for {len(bad) - MAX_LISTED:,} other pictures"
