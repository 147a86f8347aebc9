"""A pattern for English words, and the set of function words."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+(?:[-'’]\w+)*")  # keeps hyphens and contractions
TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s]+")  # a word or a run of punctuation


def word_set(text: str) -> frozenset[str]:
    """Returns the set of words in a text."""
    return frozenset(text.split())


# Closed-class words. A word that is used twice counts as a repetition unless a function word is in between.
FUNCTION_WORDS = word_set("""
    a an the this that these those some another other each one two three four and or but nor of in on at to into
    onto by with without from for as up down over under above below near off out behind beside between across along
    around through against next while is are was were be being has have it its his her their he she they who which
""")
