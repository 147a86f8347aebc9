"""METEOR's own normalisation of a text (its option ``-norm``), which comes after the PTB tokenizer of the COCO tools.

A tokenizer in the manner of Moses: signs stand alone, a hyphen between two letters is a blank, "n't" becomes
"n 't", "t.v." becomes "tv", and a full stop stays on an abbreviation. Its rules were found by comparing outputs
with the real tool.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Set

_LETTER = "A-Za-zÀ-ÖØ-öø-ž\u0400-\u0527"  # Latin and Cyrillic only: any other sign stands alone
_WORD = "0-9" + _LETTER
_EASY = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")
_BLANKS = re.compile(r"[ \t\x0c\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_HAS_LETTER = re.compile(f"[{_LETTER}]")
# In this order. A match eats its neighbours, so of "a-b-c" only the first hyphen becomes a blank, as in the tool.
_RULES = [
    (re.compile(pattern), result)
    for pattern, result in (
        ("[“”]", '"'),
        ("[‘’`]", "'"),
        ("''", '"'),
        ("–", " - "),
        (rf"([^{_WORD}\s.'\-,])", r" \1 "),
        (r"(\.{2,})", r" \1 "),
        (r"([^0-9]),([^0-9])", r"\1 , \2"),
        (r"([0-9]),([^0-9])", r"\1 , \2"),
        (r"([^0-9]),([0-9])", r"\1 , \2"),
        ("--", "-"),
        (rf"([{_WORD}.])-([{_WORD}])", r"\1 \2"),
        (rf"([^{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
        (rf"([^{_WORD}])'([{_LETTER}])", r"\1 ' \2"),
        (rf"([{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
        (rf"([{_LETTER}])'([{_LETTER}])", r"\1 '\2"),
        (r"([0-9])'s", r"\1 's"),
    )
]


def normalise(text: str, abbreviations: Set[str], before_numbers: Set[str]) -> list[str]:
    """The words of a text that the PTB tokenizer has cut, in lower case.

    ``abbreviations`` keep their full stop (given without it), ``before_numbers`` only before a number.
    """
    if _EASY.fullmatch(text):
        return text.split(" ")
    text = f" {text} "
    for pattern, result in _RULES:
        text = pattern.sub(result, text)
    chunks = [chunk for chunk in _BLANKS.split(text) if chunk]
    words = []
    for chunk, following in itertools.zip_longest(chunks, chunks[1:], fillvalue=""):
        stem = chunk[:-1]
        if not stem or chunk[-1] != "." or stem[-1] == ".":
            words.append(chunk)
        elif "." in stem and _HAS_LETTER.search(stem):
            words.append(chunk.replace(".", ""))  # "t.v." is "tv"
        else:
            abbreviated = stem in abbreviations or (stem in before_numbers and "0" <= following[:1] <= "9")
            words += [chunk] if abbreviated or "a" <= following[:1] <= "z" else [stem, "."]
    return [word.lower() for word in words]
