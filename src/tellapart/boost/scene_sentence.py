"""Describes the facts of a scene in one sentence, in the words of the captions that stated them."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.boost.scene_facts import SceneFacts, Thing
from tellapart.language.inflection import with_article
from tellapart.scenes import vocabulary as v

_NUMBERS = {number: word for word, number in v.NUMBERS.items()}


def sentence_of(facts: SceneFacts) -> str:
    """Describes all facts in one sentence."""
    mentioned: list[int] = []
    text = ""
    while len(mentioned) < len(facts.things):
        number, phrase = _next(facts, mentioned)
        mentioned.append(number)
        text += phrase
    if (missing := facts.number - len(mentioned)) > 0:
        text += " and " if text else ""
        text += "a thing" if missing == 1 else f"{_NUMBERS.get(missing, 'several')} things"
    return f"{text} {facts.ground[1]}".strip() if facts.ground else text


def _next(facts: SceneFacts, mentioned: Sequence[int]) -> tuple[int, str]:
    """Returns the next thing to mention and its phrase, which if possible states its relation to the last mentioned
    thing or to an earlier one.
    """

    def thing(number: int) -> str:
        return with_article(_noun_phrase(facts.things[number]))

    if not mentioned:
        start = _start(facts)
        return start, thing(start)
    rest = [number for number in range(len(facts.things)) if number not in mentioned]
    for number in rest:
        if (relation := facts.between(mentioned[-1], number)) is not None:
            return number, f" {'is' if len(mentioned) == 1 else 'which is'} {relation[1]} {thing(number)}"
    for number in rest:
        for old in mentioned[-2::-1]:
            if (relation := facts.between(number, old)) and (name := _definite(facts, mentioned, old)):
                return number, f" and {thing(number)} {relation[1]} {name}"
    return rest[0], f" and {thing(rest[0])}"


def _start(facts: SceneFacts) -> int:
    """Returns a thing that starts a chain of relations or, if there is no chain, the thing with the most facts."""

    def worth(number: int) -> tuple[bool, bool, int]:
        pairs = [pair for pair in facts.relations if number in pair]
        return len(pairs) == 1, any(pair[0] == number for pair in pairs), len(facts.things[number])

    return max(range(len(facts.things)), key=worth)


def _noun_phrase(thing: Thing) -> str:
    """Describes a thing without an article, e.g. "small red star that slides left"."""
    words = [thing[slot][1] for slot in ("size", "colour", "texture", "shape") if slot in thing]
    phrase = " ".join(words if "shape" in thing else [*words, "thing"])
    return f"{phrase} that {thing['motion'][1]}" if "motion" in thing else phrase


def _definite(facts: SceneFacts, mentioned: Sequence[int], old: int) -> str:
    """Returns "the star", or "the red star" if two stars were mentioned. Returns "" if no phrase distinguishes the
    thing from the others.
    """
    others = [facts.things[number] for number in mentioned if number != old]
    for slots in (("shape",), ("colour", "shape"), ("size", "colour", "texture", "shape")):
        name = {slot: facts.things[old][slot] for slot in slots if slot in facts.things[old]}
        if name and not any(_fits(name, other) for other in others):
            return f"the {_noun_phrase(name)}"
    return ""


def _fits(name: Thing, other: Thing) -> bool:
    same_shape = name.get("shape", ("", ""))[0] == other.get("shape", ("", ""))[0]
    return same_shape and all(other.get(slot, word)[0] == word[0] for slot, word in name.items())
