"""Extracts, matches and phrases the facts in captions of scenes, without using ground truth.

A thing maps slots ("shape", "colour", "size", "texture", "motion") to (value, the word used for it). "Near" counts only
if a pair has no other relation; "between" is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tellapart.language.inflection import participle, plural, with_article
from tellapart.scenes import vocabulary as v
from tellapart.scenes.parser import parse_caption, phrases, tokens
from tellapart.scenes.relations import INVERSE
from tellapart.scenes.vocabulary import ground_core, senses

Word = tuple[str, str]  # (value, the word or phrase for it)
Thing = dict[str, Word]
_MOST = 6  # maximum number of things in a caption for which all assignments are compared
_NUMBERS = {number: word for word, number in v.NUMBERS.items()}


@dataclass
class SceneFacts:
    """The facts of a caption. ``relations``: by pair (i, j) of things; ``number``: minimum number of things."""

    things: list[Thing] = field(default_factory=list)
    relations: dict[tuple[int, int], Word] = field(default_factory=dict)
    ground: Word | None = None
    number: int = 0

    def relate(self, i: int, j: int, relation: Word) -> None:
        """Adds a relation, unless the pair already has an equally specific one."""
        for pair in ((i, j), (j, i)):
            old = self.relations.get(pair)
            if old is not None and (old[0] != "near" or relation[0] == "near"):
                return
        self.relations.pop((j, i), None)
        self.relations[i, j] = relation

    def between(self, i: int, j: int) -> Word | None:
        """Returns the relation of i to j, whichever is mentioned first."""
        if (i, j) in self.relations:
            return self.relations[i, j]
        kind, word = self.relations.get((j, i), ("", ""))
        if not kind:
            return None
        return (kind, word) if kind == "near" else (INVERSE[kind], v.RELATIONS[INVERSE[kind]][0])


def facts_of(caption: str) -> SceneFacts:
    """Extracts the facts of one caption. Never fails: skips phrases that are unknown in `scenes`."""
    reading, used = parse_caption(caption), _used(caption)

    def word(slot: str, value: str) -> Word:
        return value, used.get((slot, value)) or v.WORDS[slot][value][0]

    found = SceneFacts(number=len(reading.mentions))
    for mention in reading.mentions:
        own = {"shape": (mention.shape,)} if mention.shape else {}
        found.things.append({slot: word(slot, values[0]) for slot, values in {**own, **mention.values}.items()})
    for kind, *who in reading.relations:
        if kind != "between" and who[0] != who[1]:
            found.relate(int(who[0]), int(who[1]), word("relation", str(kind)))
    if reading.grounds:
        value = reading.grounds[0]
        found.ground = value, used.get(("ground", value)) or v.GROUNDS[value][0]
    return found


def _used(caption: str) -> dict[tuple[str, str], str]:
    """Maps each (kind, value) in a caption to the usual form of the first phrase that expresses it."""
    words = tokens(caption)
    found: dict[tuple[str, str], str] = {}
    for at, length, sense in phrases(words):
        if sense is not None and sense.value:
            phrase = " ".join(words[at : at + length])
            found.setdefault((sense.kind, sense.value), _usual_forms().get((sense.kind, phrase), phrase))
    return found


@lru_cache(maxsize=1)
def _usual_forms() -> dict[tuple[str, str], str]:
    """Maps plurals to singulars, participles to finite verbs, and backgrounds to their phrase with its preposition."""
    forms: dict[tuple[str, str], str] = {}
    for key, sense in senses().items():
        if sense.kind == "shape" and not sense.plural:
            forms["shape", plural(" ".join(key))] = " ".join(key)
    for spoken in (phrase for row in v.MOTIONS.values() for phrase in row):
        verb, _, rest = spoken.partition(" ")
        for doing in (participle(verb), verb):
            forms["motion", f"{doing} {rest}".strip()] = spoken
            forms["motion", f"{doing} {rest}wards"] = spoken
    for grounds in (v.ALT_WORDS["ground"], v.GROUNDS):
        for row in grounds.values():
            forms |= {("ground", ground_core(phrase)): phrase for phrase in reversed(row)}
    return forms


Score = Callable[[Thing, Thing], float | None]


def matched(theirs: SceneFacts, ours: SceneFacts, score: Score, agreeing: float) -> list[int]:
    """Assigns one of our things, or -1 for none, to each of theirs, so that the total score is maximal.

    score: the score of a pair; None if the two cannot be the same thing.
    agreeing: added for each relation that both texts state for the same things, subtracted for each contradiction. A
    thing is never assigned twice.
    """
    best: tuple[float, list[int]] = (-1.0, [-1] * len(theirs.things))

    def step(at: int, meant: list[int], total: float) -> None:
        nonlocal best
        if at == min(len(theirs.things), _MOST):
            total += agreeing * _agreement(theirs, ours, meant)
            if total > best[0]:
                best = total, [*meant, *[-1] * (len(theirs.things) - at)]
            return
        for number, own in enumerate(ours.things):
            if number not in meant and (won := score(theirs.things[at], own)) is not None:
                step(at + 1, [*meant, number], total + won)
        step(at + 1, [*meant, -1], total)

    step(0, [], 0.0)
    return best[1]


def _agreement(theirs: SceneFacts, ours: SceneFacts, meant: Sequence[int]) -> int:
    total = 0
    for (i, j), (kind, _) in theirs.relations.items():
        if i < len(meant) and j < len(meant) and meant[i] >= 0 and meant[j] >= 0:
            own = ours.between(meant[i], meant[j])
            if own is not None and own[0] in (kind, INVERSE[kind]) and kind != "near":
                total += 1 if own[0] == kind else -1
    return total


def say(facts: SceneFacts) -> str:
    """Phrases all facts as one sentence, in the words of the texts that stated them."""
    mentioned: list[int] = []
    text = ""
    if facts.things:
        mentioned.append(_start(facts))
        text = with_article(noun_phrase(facts.things[mentioned[0]]))
    while len(mentioned) < len(facts.things):
        text += _next(facts, mentioned, first=len(mentioned) == 1)
    if (missing := facts.number - len(mentioned)) > 0:
        text += " and " if text else ""
        text += "a thing" if missing == 1 else f"{_NUMBERS.get(missing, 'several')} things"
    return f"{text} {facts.ground[1]}".strip() if facts.ground else text


def noun_phrase(thing: Thing) -> str:
    """Phrases the facts of a thing without an article, e.g. "small red star that slides left"."""
    words = [thing[slot][1] for slot in ("size", "colour", "texture", "shape") if slot in thing]
    phrase = " ".join(words if "shape" in thing else [*words, "thing"])
    return f"{phrase} that {thing['motion'][1]}" if "motion" in thing else phrase


def _start(facts: SceneFacts) -> int:
    """Returns a thing that starts a chain of relations or, if there is none, the thing with the most facts."""

    def worth(number: int) -> tuple[bool, bool, int]:
        pairs = [pair for pair in facts.relations if number in pair]
        return len(pairs) == 1, any(pair[0] == number for pair in pairs), len(facts.things[number])

    return max(range(len(facts.things)), key=worth)


def _next(facts: SceneFacts, mentioned: list[int], first: bool) -> str:
    """Phrases the next thing, if possible by its relation to the last or an earlier one, and adds it to
    ``mentioned``.
    """
    rest = [number for number in range(len(facts.things)) if number not in mentioned]
    for number in rest:
        if (relation := facts.between(mentioned[-1], number)) is not None:
            mentioned.append(number)
            return f" {'is' if first else 'which is'} {relation[1]} {with_article(noun_phrase(facts.things[number]))}"
    for number in rest:
        for old in mentioned[-2::-1]:
            if (relation := facts.between(number, old)) and (name := _definite(facts, mentioned, old)):
                mentioned.append(number)
                return f" and {with_article(noun_phrase(facts.things[number]))} {relation[1]} {name}"
    mentioned.append(rest[0])
    return f" and {with_article(noun_phrase(facts.things[rest[0]]))}"


def _definite(facts: SceneFacts, mentioned: Sequence[int], old: int) -> str:
    """Returns "the star", or "the red star" if two stars were mentioned; empty if nothing distinguishes it."""
    thing = facts.things[old]
    others = [facts.things[number] for number in mentioned if number != old]
    for slots in (("shape",), ("colour", "shape"), ("size", "colour", "texture", "shape")):
        own = {slot: thing[slot] for slot in slots if slot in thing}
        if own and not any(_fits(own, other) for other in others):
            return f"the {noun_phrase(own)}"
    return ""


def _fits(named: Thing, other: Thing) -> bool:
    """Returns whether the name also fits the other thing."""
    same_shape = named.get("shape", ("", ""))[0] == other.get("shape", ("", ""))[0]
    return same_shape and all(other.get(slot, word)[0] == word[0] for slot, word in named.items())
