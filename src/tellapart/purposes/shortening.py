"""Shortens captions: removes openings such as "The image shows", and limits the number of characters."""

from __future__ import annotations

import re

from tellapart.language.english_words import FUNCTION_WORDS
from tellapart.language.phrase_ends import phrase_ends
from tellapart.language.sentences import sentences
from tellapart.language.stock_phrases import without_opening


def without_openings(text: str) -> tuple[str, str]:
    """Joins the lines of a text, and removes openings such as "The image shows" from all sentences.

    Returns the text and the first removed opening.
    """
    text = " ".join(filter(None, map(str.strip, text.splitlines())))  # a line break would separate two texts
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
