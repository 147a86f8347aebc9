"""Every phrase of the vocabulary with its one meaning, for parsing captions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tellapart.language.english import participle, plural

from . import vocabulary as v

_GROUND_LEADS = re.compile(r"^(?:(?:on|in|at|against|under) )?(?:the )?")
# Words without a claim. Any other word that is in no phrase below is unknown.
_NOISE = """
there here are be was it its this these those who we i see can shows shown show seen showing picture image view
look at clip video scene of in on with against the whole everything all both them they together to from what where
while as set placed located lie rest photo drawing graphic illustration background backdrop up down out into onto
for has have having being contains containing depicts watch featuring found
"""
NOISE = frozenset(_NOISE.split())
BOILERPLATE = (*v.ALT_PREFIXES, *v.ALT_TAILS, *v.ALT_FILES, *v.ALT_ENDINGS)
SENSES_OF_ARTICLES = ("a", "an", "the", "one", "another")


@dataclass(frozen=True, slots=True)
class Sense:
    """What a phrase means: ``kind`` is a slot, ground, relation, generic, number, article, ... ."""

    kind: str
    value: str
    plural: bool = False


def ground_core(phrase: str) -> str:
    """A ground's phrase without its preposition and article: what it is recognised by."""
    return _GROUND_LEADS.sub("", phrase)


class _Table:
    def __init__(self) -> None:
        self.senses: dict[tuple[str, ...], Sense] = {}

    def add(self, phrase: str, sense: Sense) -> None:
        key = tuple(phrase.split())
        if self.senses.setdefault(key, sense) != sense:
            raise ValueError(f"'{phrase}' means both {self.senses[key]} and {sense}")


def _add_motions(table: _Table) -> None:
    for value, phrases in v.MOTIONS.items():
        for phrase in phrases:
            verb, _, rest = phrase.partition(" ")
            if rest in ("left", "right"):
                for form in (verb, participle(verb)):
                    table.add(f"{form} {rest}wards", Sense("motion", value))
            base = verb[:-2] if verb.endswith(("shes", "ches")) else verb[:-1]
            for form in (verb, base, participle(verb)):
                table.add(f"{form} {rest}".strip(), Sense("motion", value))


@lru_cache(maxsize=1)
def senses() -> dict[tuple[str, ...], Sense]:
    """Token tuples to their meaning. Raises ValueError if the vocabulary gives a phrase two."""
    table = _Table()
    for kind in ("shape", "colour", "size", "texture"):
        for words in (v.WORDS[kind], v.ALT_WORDS[kind]):
            for value, phrases in words.items():
                for phrase in phrases:
                    table.add(phrase, Sense(kind, value))
                    many = plural(phrase)
                    if kind == "shape" and many != phrase:
                        table.add(many, Sense(kind, value, plural=True))
    for words in (v.GROUNDS, v.ALT_WORDS["ground"]):
        for value, phrases in words.items():
            for phrase in phrases:
                table.add(ground_core(phrase), Sense("ground", value))
    for words in (v.RELATIONS, v.ALT_WORDS["relation"]):
        for value, phrases in words.items():
            for phrase in phrases:
                table.add(phrase, Sense("relation", value))
    _add_motions(table)
    for noun in {*v.GENERIC, *v.ALT_GENERIC}:
        table.add(noun, Sense("generic", ""))
        table.add(plural(noun), Sense("generic", "", plural=True))
    for word, number in v.NUMBERS.items():
        table.add(word, Sense("number", str(number)))
    table.add("a pair of", Sense("number", "2"))
    for phrase in v.GROUPS:
        table.add(phrase, Sense("group", ""))
    for word in SENSES_OF_ARTICLES:
        table.add(word, Sense("article", word))
    for word in (
        "both of them",
        "all of them",
        "the whole scene",
        "in this picture",
        "in this clip",
        "what we can see",
    ):
        table.add(word, Sense("noise", ""))
    for word in ("and", "then"):
        table.add(word, Sense("and", ""))
    for verb in v.VERBS:
        table.add(verb, Sense("verb", ""))
    for phrases in v.MOTIONS.values():
        for phrase in phrases:
            # "drifts left of the star": without its direction the verb claims nothing.
            table.senses.setdefault((phrase.split()[0],), Sense("verb", ""))
    for word in ("is", "are", "that is", "which is", "which are"):
        table.add(word, Sense("copula", ""))
    table.add("which", Sense("which", ""))
    table.add("that", Sense("which", ""))
    for phrase in BOILERPLATE:
        table.senses.setdefault(tuple(phrase.split()), Sense("noise", ""))
    for word in NOISE:
        table.senses.setdefault((word,), Sense("noise", ""))
    return table.senses


@lru_cache(maxsize=1)
def openings() -> dict[str, tuple[int, ...]]:
    """First word of a phrase to the lengths to try, longest first."""
    lengths: dict[str, set[int]] = {}
    for key in senses():
        lengths.setdefault(key[0], set()).add(len(key))
    return {word: tuple(sorted(found, reverse=True)) for word, found in lengths.items()}
