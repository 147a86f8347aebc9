"""Patterns for English words, and the closed lists of words that several modules of this folder use."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+(?:[-'’]\w+)*")  # keeps hyphens and contractions
TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s]+")  # a word or a run of punctuation


def number_of(text: str) -> int | None:
    """Returns the value of a text of up to 18 digits, otherwise None. (`int` raises for more than 4,300 digits.)"""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def word_set(text: str) -> frozenset[str]:
    """Returns the set of words in a text."""
    return frozenset(text.split())


# Closed-class words. A word that is used twice counts as a repetition unless a function word is in between.
FUNCTION_WORDS = word_set("""
    a an the this that these those some another other each one two three four and or but nor of in on at to into
    onto by with without from for as up down over under above below near off out behind beside between across along
    around through against next while is are was were be being has have it its his her their he she they who which
""")
# Prepositions that state where something is. All other function words make no claim.
RELATIONS = word_set("""
    over under above below behind beside beneath underneath between across along around through near off inside outside
""")
COLOURS = word_set("black white red blue green yellow brown gray grey orange pink purple")
COPULAS = word_set("is are was were be been being")
# Participles that usually come before their object rather than before a noun that they modify.
TAKE_OBJECTS = word_set("""
    wearing holding carrying riding playing doing performing using chasing throwing catching watching pulling pushing
    eating drinking reading making taking getting having
""")

# Words around nouns, as `tellapart.language.condensing` reads descriptions.
ARTICLES = ("a", "an")
DETERMINERS = word_set("""
    a an the his her their its this that these those some another other each both all one two three four
""")
PREPOSITIONS = word_set("""
    on in at with to from by into onto upon against for up down toward towards past during among as
    inside outside under over behind beside
""")
CONJUNCTIONS = word_set("and but or while whilst as who which that")
SIDES = ("left", "right", "front", "top", "back", "ahead")  # a noun before one of these words does not modify it
PLACES = {*SIDES, *word_set("side middle center centre edge end bottom corner foot out")}

# Words around nouns, as `tellapart.language.phrase_tokens` splits captions from which words are dropped.
SOFT_DETERMINERS = word_set("a an the his her their its this that these those some another other each")
NUMBERS = word_set("two three four five six seven eight nine ten several many some few")
SOFT_PREPOSITIONS = RELATIONS | word_set(
    "on in at with of to from by into onto against inside outside for as up down out"
)
SOFT_AUXILIARIES = word_set("is are was were be being been has have")
