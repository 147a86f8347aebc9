"""The text that is made of a caption, without empty openings and in at most so many characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tellapart.language.answers import without_opening
from tellapart.language.english import FUNCTION_WORDS
from tellapart.language.phrases import phrase_ends
from tellapart.language.words import sentences

SHOWN = 20  # words, examples and pictures by name


@dataclass(frozen=True)
class Edited:
    """The text that was made of a caption; empty where none could be. ``doubts``: (kind, detail) of what was done.

    ``long``: the second, longer text; empty where there is none. ``accepted``: by a person, as it is; an accepted text
    that is empty is that of a decorative picture. ``language``: its code, "" if that is not said.
    """

    text: str
    doubts: tuple[tuple[str, str], ...] = ()
    long: str = ""
    accepted: bool = False
    language: str = ""

    @property
    def decorative(self) -> bool:
        """Returns whether a person said that the picture needs no text."""
        return self.accepted and not self.text


def without_openings(text: str) -> tuple[str, str]:
    """Returns the text whose sentences do not open with "The image shows" or the like, and the first such opening."""
    removed, kept = "", ""
    for sentence in (part for whole in sentences(text) for part in re.split(r"(?<=[。！？])", whole) if part):
        part, opening = without_opening(sentence)
        while opening:
            removed = removed or opening
            shorter, opening = without_opening(part)
            part = shorter
        if part:  # not "Sure!" alone
            part = part[:1].upper() + part[1:] if part != sentence and sentence[:1].isupper() else part
            kept += part if not kept or kept[-1] in "。！？" else f" {part}"
    return kept or text, removed if kept else ""


def shortened(text: str, most: int, *, whole_phrases: bool = False, english: bool = True) -> tuple[str, str]:
    """Returns the text in at most ``most`` characters, and how it was cut: "", "sentence", "phrase" or "word".

    Whole sentences where one fits, else the longest beginning of the first that ends with a phrase, else with a word
    that may stand last.

    Args:
        whole_phrases: never cuts within a phrase, so that the first one may be longer than ``most``.
        english: finds phrases by English grammar; else a phrase ends before a comma or a semicolon.
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
    """Returns one text of each picture, its different ones a line each; for keys see `LoraCaptions.edited`."""
    found: dict[str, Edited] = {}
    for key, one in edited.items():
        first = found.setdefault(key.partition("\n")[0], one)
        texts = dict.fromkeys(text for text in (*first.text.split("\n"), one.text) if text)
        doubts = () if texts and not first.text else first.doubts
        found[key.partition("\n")[0]] = replace(first, text="\n".join(texts), doubts=doubts)
    return found


def has_phrase(text: str, phrase: str) -> bool:
    """Returns whether a text has a phrase as whole words, in any case of letters."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


def without_text(edited: Mapping[str, Edited]) -> Iterator[str]:
    """Yields a line for each picture without a text that says why, up to `SHOWN`."""
    bad = [(key, one.doubts[0][1]) for key, one in edited.items() if not one.text]
    yield from (f"no text for {key}: its caption is {why}" for key, why in bad[:SHOWN])
    if len(bad) > SHOWN:
        yield f"no text for {len(bad) - SHOWN:,} more"
