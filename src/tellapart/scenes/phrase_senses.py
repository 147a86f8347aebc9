"""The meaning of every phrase in the vocabulary of the synthetic world, for the parser of captions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tellapart.scenes import vocabulary as v
from tellapart.scenes.word_forms import participle, plural

_GROUND_LEADS = re.compile(r"^(?:(?:on|in|at|against|under) )?(?:the )?")
# Words that claim nothing. A word is unknown if it is neither in this list nor in a phrase below.
_NOISE = """
there here are be was it its this these those who we i see can shows shown show seen showing picture image view
look at clip video scene of in on with against the whole everything all both them they together to from what where
while as set placed located lie rest photo drawing graphic illustration background backdrop up down out into onto
for has have having being contains containing depicts watch featuring found
"""
NOISE = frozenset(_NOISE.split())
# Phrases of other kinds, which state no value.
_OTHER_PHRASES = {
    "group": v.GROUPS,
    "article": ("a", "an", "the", "one", "another"),
    "noise": ("both of them", "all of them", "the whole scene", "in this picture", "in this clip", "what we can see"),
    "and": ("and", "then"),
    "verb": v.VERBS,
    "copula": ("is", "are", "that is", "which is", "which are"),
    "which": ("which", "that"),
}


@dataclass(frozen=True, slots=True)
class Sense:
    """A phrase's meaning. ``kind`` is a slot, or ground, relation, generic, number, article, …"""

    kind: str
    value: str
    plural: bool = False


def ground_core(phrase: str) -> str:
    """Returns a background's phrase without preposition and article. The parser recognizes the background by this
    phrase.
    """
    return _GROUND_LEADS.sub("", phrase)


def _motion_forms(phrase: str) -> set[str]:
    """Returns the forms of a motion: slides left, slide left, sliding left, slides leftwards, sliding leftwards."""
    verb, _, rest = phrase.partition(" ")
    base = verb[:-2] if verb.endswith(("shes", "ches")) else verb[:-1]
    forms = {f"{form} {rest}".strip() for form in (verb, base, participle(verb))}
    return forms | ({f"{form} {rest}wards" for form in (verb, participle(verb))} if rest in v.SIDES else set())


def _meanings() -> Iterator[tuple[str, Sense]]:
    """Yields each phrase with its meaning, or with each of its meanings if there are several by mistake."""
    for kind, words in v.WORDS.items():
        for value, phrases in (*words.items(), *v.ALT_WORDS.get(kind, {}).items()):
            for phrase in phrases:
                core = ground_core(phrase) if kind == "ground" else phrase
                for form in _motion_forms(phrase) if kind == "motion" else (core,):
                    yield form, Sense(kind, value)
                if kind == "shape" and plural(phrase) != phrase:
                    yield plural(phrase), Sense(kind, value, plural=True)
    for noun in (*v.GENERIC, *v.ALT_GENERIC):
        yield noun, Sense("generic", "")
        yield plural(noun), Sense("generic", "", plural=True)
    for word, number in (*v.NUMBERS.items(), ("a pair of", 2)):
        yield word, Sense("number", str(number))
    for kind, other in _OTHER_PHRASES.items():
        yield from ((phrase, Sense(kind, "")) for phrase in other)


@lru_cache(maxsize=1)
def senses() -> dict[tuple[str, ...], Sense]:
    """Maps tuples of tokens to their meanings. Raises ValueError for a phrase with two meanings."""
    table: dict[tuple[str, ...], Sense] = {}
    for phrase, sense in _meanings():
        known = table.setdefault(tuple(phrase.split()), sense)
        if known != sense:
            raise ValueError(f"'{phrase}' means both {known} and {sense}")
    # In "drifts left of the star", the verb has no direction, so it makes no claim.
    verbs = [phrase.split()[0] for phrases in v.MOTIONS.values() for phrase in phrases]
    noise = (*v.ALT_PREFIXES, *v.ALT_TAILS, *v.ALT_FILES, *v.ALT_ENDINGS, *NOISE)
    for kind, rest in (("verb", verbs), ("noise", noise)):
        for phrase in rest:
            table.setdefault(tuple(phrase.split()), Sense(kind, ""))
    return table


@lru_cache(maxsize=1)
def openings() -> dict[str, tuple[int, ...]]:
    """Maps the first word of each phrase to the phrase lengths to try, longest first."""
    lengths: dict[str, set[int]] = {}
    for key in senses():
        lengths.setdefault(key[0], set()).add(len(key))
    return {word: tuple(sorted(found, reverse=True)) for word, found in lengths.items()}
