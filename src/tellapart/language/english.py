"""English articles, plurals, verb forms and function words, and HanTa's tags and lemmas (extra ``words``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_IRREGULAR = {
    "leaf": "leaves", "fish": "fish", "trout": "trout", "goldfish": "goldfish", "fungus": "fungi", "rhombus": "rhombi",
    "annulus": "annuli", "cumulus": "cumuli", "daisy": "daisies", "half-moon": "half-moons", "lightning": "lightning",
    "valentine": "valentines", "christmas-tree": "christmas-trees",
}  # fmt: skip
# Words may contain hyphens. Contractions are split as in the tagger's training corpus: "do n't", "dog 's".
WORD_PATTERN = re.compile(r"\w+(?:-\w+)*?(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+(?:-\w+)*|[.,;:!?]")
WORD = re.compile(r"\w+(?:[-'’]\w+)*")  # with its hyphens and contractions
LONGEST_WORD = 100


def word_set(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


# Closed-class words. A word that is used twice counts as a repetition unless one of these is in between.
FUNCTION_WORDS = word_set("""
    a an the this that these those some another other each one two three four and or but nor of in on at to into
    onto by with without from for as up down over under above below near off out behind beside between across along
    around through against next while is are was were be being has have it its his her their he she they who which
""")


def article(word: str) -> str:
    """Returns the indefinite article of a word: "a" or "an"."""
    vowel = word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu"))
    return "an" if vowel or word.lower().startswith(("hour", "honest")) else "a"


def plural(noun: str) -> str:
    """Returns the plural of a noun: from a list for irregular nouns in `scenes`, else by its ending."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    return noun + ("es" if noun.endswith(("s", "x", "sh", "ch")) else "s")


def with_article(phrase: str) -> str:
    """Returns the phrase with "a" or "an" before it."""
    return f"{article(phrase)} {phrase}"


def singular(noun: str) -> str:
    """Returns the singular of a noun ("thing" for "things"), by spelling only."""
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def third_person(lemma: str) -> str:
    """Returns the third person singular of a verb: "carries", "catches"."""
    if lemma.endswith("y") and lemma[-2] not in "aeiou":
        return f"{lemma[:-1]}ies"
    return f"{lemma}es" if lemma.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{lemma}s"


def participle(phrase: str) -> str:
    """Returns the participle of a verb phrase: "sliding left" for "slides left", "hopping" for "hops"."""
    verb, _, rest = phrase.partition(" ")
    stem = verb[:-1]
    if verb.endswith(("shes", "ches", "sses")):
        stem = verb[:-2]
    if stem in ("sit", "hop", "run"):
        stem += stem[-1]
    elif stem.endswith("e"):
        stem = stem[:-1]
    return f"{stem}ing {rest}".strip()


@cache
def _tagger() -> Any:
    from HanTa.HanoverTagger import HanoverTagger

    return HanoverTagger("morphmodel_en.pgz")


def tag_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns HanTa's (lower-cased lemma, CLAWS 5 tag) for each word of a sentence."""
    # The tagger's runtime is quadratic in a word's length; real words are shorter than this limit.
    tagged = _tagger().tag_sent([word[:LONGEST_WORD] for word in words]) if words else []
    return [(lemma.lower(), tag) for _, lemma, tag in tagged]


@cache
def analyser() -> Callable[[str], list[tuple[str, str, str]]]:
    """Returns a function that analyzes a caption with HanTa: (word, lemma, CLAWS 5 tag), the first two lower-cased."""

    def analyse(caption: str) -> list[tuple[str, str, str]]:
        words = [word[:LONGEST_WORD] for word in WORD_PATTERN.findall(caption.replace("’", "'"))]
        tagged = zip(words, tag_words(words), strict=True)
        return [(word.lower(), lemma, tag) for word, (lemma, tag) in tagged if not tag.startswith("PU")]

    return analyse
