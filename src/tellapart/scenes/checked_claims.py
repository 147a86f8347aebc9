"""Checks the claims in a caption against its scene's ground truth.

A caption's claims are the shape of every object that it mentions, every attribute (whether bound to an object or not),
every relation, the background, and the number in "three things". A mention refers to the object for which most of its
claims are true (`align`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tellapart.scenes.alignment import PLACE, align, related
from tellapart.scenes.parser import ParsedCaption, Words
from tellapart.scenes.world import Scene

Fact = tuple[object, ...]
"""A fact about a scene that a true claim states: an object's attribute, a relation, or the background."""

# The reasons why a claim is false, as shown on pages.
NOWHERE = "not in the picture"
ELSEWHERE = "only true of another object"
CONTRADICTED = "contradicted by another word"
NOT_SO = "not true in the picture"
TOO_MANY = "more than the picture shows"


class CheckedClaim(NamedTuple):
    """A claim that was checked against a scene.

    words: the words that make the claim, for each time that the caption makes it (for a true relation, only
        the first time).
    why: why the claim is false; "" if it is true.
    facts: the facts that the claim states, if it is true and does not follow from other claims.
    bound: whether the claim is about a particular object.
    """

    kind: str
    words: tuple[Words, ...]
    why: str = ""
    facts: tuple[Fact, ...] = ()
    bound: bool = False


def checked_claims(parsed: ParsedCaption, scene: Scene) -> list[CheckedClaim]:
    """Returns the claims in a caption, each checked against a scene. Never raises; an empty caption makes no claims.

    Repeated relations, backgrounds and attributes without an object are one claim each.
    """
    _, meant = align(parsed, scene)
    claims = [
        *_claims_about_objects(parsed, scene, meant),
        *_claims_about_ground(parsed, scene),
        *_loose_claims(parsed, scene),
        *_relation_claims(parsed, scene, meant),
    ]
    if parsed.number is not None:
        why = "" if parsed.number == len(scene.objects) else NOT_SO
        claims.append(CheckedClaim("number", (parsed.claim_words.number,), why))
    return claims


def _claims_about_objects(parsed: ParsedCaption, scene: Scene, meant: tuple[int, ...]) -> Iterator[CheckedClaim]:
    for mention, at in zip(parsed.mentions, meant, strict=True):
        thing = scene.facts[at] if at >= 0 else None
        shape = {"shape": (mention.shape,)} if mention.shape else {}
        for slot, values in (shape | mention.values).items():
            for value in values:
                words = (mention.words.get((slot, value), ()),)
                if thing is not None and thing[PLACE[slot]] == value:
                    why = CONTRADICTED if len(values) > 1 else ""
                    yield CheckedClaim(slot, words, why, () if why else ((slot, thing),), bound=True)
                elif not _occurs(slot, value, scene):
                    yield CheckedClaim(slot, words, NOWHERE, bound=True)
                else:
                    excess = slot == "shape" and thing is None
                    yield CheckedClaim(slot, words, TOO_MANY if excess else ELSEWHERE, bound=True)


def _occurs(slot: str, value: str, scene: Scene) -> bool:
    return any(facts[PLACE[slot]] == value for facts in scene.facts)


def _claims_about_ground(parsed: ParsedCaption, scene: Scene) -> Iterator[CheckedClaim]:
    grounds = dict.fromkeys(parsed.grounds)
    for ground in grounds:
        words = _words_of(ground, parsed.grounds, parsed.claim_words.grounds)
        why = NOWHERE if ground != scene.ground else CONTRADICTED if len(grounds) > 1 else ""
        yield CheckedClaim("ground", words, why, () if why else (("ground",),))


def _loose_claims(parsed: ParsedCaption, scene: Scene) -> Iterator[CheckedClaim]:
    for slot, value in dict.fromkeys(parsed.loose):
        words = _words_of((slot, value), parsed.loose, parsed.claim_words.loose)
        yield CheckedClaim(slot, words, "" if _occurs(slot, value, scene) else NOWHERE)


def _relation_claims(parsed: ParsedCaption, scene: Scene, meant: tuple[int, ...]) -> Iterator[CheckedClaim]:
    group = list(range(len(scene.facts)))  # objects that true relations connect have the same number
    for claim in dict.fromkeys(parsed.relations):
        words = _words_of(claim, parsed.relations, parsed.claim_words.relations)
        if not related(claim, meant, scene.objects):
            yield CheckedClaim("relation", words, NOT_SO)
            continue
        facts: list[Fact] = []
        first, *others = (meant[int(m)] for m in claim[1:])
        for other in others:
            if group[first] != group[other]:
                facts.append(("relation", *sorted((first, other))))
                old, new = group[other], group[first]
                group = [new if number == old else number for number in group]
        yield CheckedClaim("relation", words[:1], "", tuple(facts))


def _words_of(claim: object, claims: Sequence[object], claim_words: Sequence[Words]) -> tuple[Words, ...]:
    """Returns the words of every occurrence of a claim."""
    return tuple(words for own, words in zip(claims, claim_words, strict=True) if own == claim)
