"""Counts a caption's true and false claims, based on its scene's ground truth.

A caption's claims are the shape of every object that it mentions, every attribute (whether bound to an object or not),
every relation, the background, and the number in "three things". A mention refers to the object for which most of its
claims are true (`align`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tellapart.language.distinct_claims import Judged
from tellapart.scenes.alignment import PLACE, align, related
from tellapart.scenes.objects import FIELDS
from tellapart.scenes.parser import Mention, ParsedCaption, Words, parse_caption, tokens, word_spans
from tellapart.scenes.world import Scene

FACT_KINDS = (*FIELDS, "relation", "ground", "number")
"""The kinds of claims. A number ("three things") is a kind of claim, but not a separate fact about the scene."""


class KindCounts(NamedTuple):
    """The counts for one kind of claim (see `ClaimCounts`)."""

    claims: int
    correct: int
    attributes: int
    recalled: int


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """The counts for one caption.

    claims               all claims (see the module docstring)
    correct              true claims
    bound                claims about the shape or an attribute of an object
    binding_errors       bound claims that are false although another object in the scene has the value
    hallucinations       claims (shape, attribute, background) whose value is nowhere in the scene, and the shape of
                         every object in excess of the number in the scene
    relation_errors      claimed relations that do not hold
    conflicts            bound values that fit the object but contradict another value for the same slot ("red blue
                         square"), and a true background if another one is also mentioned
    attributes           attributes of the scene: four per object (five in clips), n-1 relations, one background
    recalled             attributes that the caption states correctly for the right object; true relations that
                         connect objects not yet connected
    repetitions          immediate repeats of a run of words; repeated mentions beyond the number of objects that
                         fit them; repeated backgrounds and relations
    """

    claims: int
    correct: int
    bound: int
    binding_errors: int
    hallucinations: int
    relation_errors: int
    conflicts: int
    attributes: int
    recalled: int
    repetitions: int
    words: int
    kinds: Mapping[str, KindCounts] = field(default_factory=dict)

    @property
    def attribute_precision(self) -> float:
        """Returns the share of claims that are correct, 0..1; NaN for a caption without claims."""
        return self.correct / self.claims if self.claims else float("nan")

    @property
    def attribute_recall(self) -> float:
        """Returns the share of the scene's attributes that are recalled, 0..1."""
        return self.recalled / self.attributes


Fact = tuple[object, ...]
"""A fact about a scene that a true claim states: an object's attribute, a relation, or the background."""

# The reasons why a claim is false, as shown on pages.
NOWHERE = "not in the picture"
ELSEWHERE = "only true of another object"
CONTRADICTED = "contradicted by another word"
NOT_SO = "not true in the picture"
TOO_MANY = "more than the picture shows"


class _Claim(NamedTuple):
    """A claim that was checked against a scene.

    words: the words that make the claim, for each time that the caption makes it.
    why: why the claim is false; "" if it is true.
    facts: the facts that the claim states, if it is true and does not follow from other claims.
    bound: whether the claim is about a particular object.
    """

    kind: str
    words: tuple[Words, ...]
    why: str = ""
    facts: tuple[Fact, ...] = ()
    bound: bool = False


def _checked_claims(parsed: ParsedCaption, scene: Scene) -> list[_Claim]:
    _, meant = align(parsed, scene)
    claims = [
        *_claims_about_objects(parsed, scene, meant),
        *_claims_about_ground(parsed, scene),
        *_loose_claims(parsed, scene),
        *_relation_claims(parsed, scene, meant),
    ]
    if parsed.number is not None:
        why = "" if parsed.number == len(scene.objects) else NOT_SO
        claims.append(_Claim("number", (parsed.claim_words.number,), why))
    return claims


def _claims_about_objects(parsed: ParsedCaption, scene: Scene, meant: tuple[int, ...]) -> Iterator[_Claim]:
    for mention, at in zip(parsed.mentions, meant, strict=True):
        thing = scene.facts[at] if at >= 0 else None
        shape = {"shape": (mention.shape,)} if mention.shape else {}
        for slot, values in (shape | mention.values).items():
            for value in values:
                words = (mention.words.get((slot, value), ()),)
                if thing is not None and thing[PLACE[slot]] == value:
                    true = len(values) == 1
                    yield _Claim(slot, words, "" if true else CONTRADICTED, ((slot, thing),) if true else (), True)
                elif not _occurs(slot, value, scene):
                    yield _Claim(slot, words, NOWHERE, bound=True)
                else:
                    excess = slot == "shape" and thing is None
                    yield _Claim(slot, words, TOO_MANY if excess else ELSEWHERE, bound=True)


def _occurs(slot: str, value: str, scene: Scene) -> bool:
    return any(facts[PLACE[slot]] == value for facts in scene.facts)


def _claims_about_ground(parsed: ParsedCaption, scene: Scene) -> Iterator[_Claim]:
    grounds = dict.fromkeys(parsed.grounds)
    for ground in grounds:
        words = _words_of(ground, parsed.grounds, parsed.claim_words.grounds)
        why = NOWHERE if ground != scene.ground else CONTRADICTED if len(grounds) > 1 else ""
        yield _Claim("ground", words, why, () if why else (("ground",),))


def _loose_claims(parsed: ParsedCaption, scene: Scene) -> Iterator[_Claim]:
    for slot, value in dict.fromkeys(parsed.loose):
        words = _words_of((slot, value), parsed.loose, parsed.claim_words.loose)
        yield _Claim(slot, words, "" if _occurs(slot, value, scene) else NOWHERE)


def _relation_claims(parsed: ParsedCaption, scene: Scene, meant: tuple[int, ...]) -> Iterator[_Claim]:
    group = list(range(len(scene.facts)))  # objects that true relations connect have the same number
    for claim in dict.fromkeys(parsed.relations):
        words = _words_of(claim, parsed.relations, parsed.claim_words.relations)
        if not related(claim, meant, scene.objects):
            yield _Claim("relation", words, NOT_SO)
            continue
        facts: list[Fact] = []
        first, *others = (meant[int(m)] for m in claim[1:])
        for other in others:
            if group[first] != group[other]:
                facts.append(("relation", *sorted((first, other))))
                old, new = group[other], group[first]
                group = [new if number == old else number for number in group]
        yield _Claim("relation", words[:1], "", tuple(facts))


def _words_of(claim: object, claims: Sequence[object], claim_words: Sequence[Words]) -> tuple[Words, ...]:
    """Returns the words of every occurrence of a claim."""
    return tuple(words for own, words in zip(claims, claim_words, strict=True) if own == claim)


@dataclass(frozen=True, slots=True)
class MarkedCaption:
    """The number of a caption's claims, and how many of them are ``correct``.

    ``false`` contains (start, end, reason) for the words that make false claims, in characters and in ascending order.
    """

    claims: int
    correct: int
    false: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class StatedClaim:
    """A claim in a caption: the indices of its ``words``, and the ``fact`` that it states (None if the claim is
    false).
    """

    words: Words
    fact: Fact | None


def stated_claims(caption: str, scene: Scene) -> list[StatedClaim]:
    """Returns a caption's claims according to the rules of `count_claims`. `ClaimCounts.attributes` counts the scene's
    facts.

    Leaves out claims that, whether true or false, do not state a separate fact: the number of objects, and attributes
    without an object. Also leaves out true relations that follow from other relations. Never raises.
    """
    about_facts = [
        claim
        for claim in _checked_claims(parse_caption(caption), scene)
        if claim.bound or claim.kind in ("relation", "ground")
    ]
    true = [StatedClaim(words, fact) for claim in about_facts for words in claim.words for fact in claim.facts]
    false = [StatedClaim(words, None) for claim in about_facts if claim.why for words in claim.words]
    return [claim for claim in true + false if claim.words]


def judged_by_scene(caption: str, scene: Scene) -> Judged:
    """Checks the claims in a caption against a scene.

    The key of a true claim is the fact that it states; the key of a false claim consists of its words.
    """
    words = tokens(caption)
    return {
        claim.fact if claim.fact is not None else ("false", *(words[word] for word in claim.words)): (
            claim.fact is not None
        )
        for claim in stated_claims(caption, scene)
    }


def mark_caption(caption: str, scene: Scene) -> MarkedCaption:
    """Marks the words that make false claims in a caption, according to the rules of `count_claims`. Never raises."""
    claims, where = _checked_claims(parse_caption(caption), scene), word_spans(caption)
    why: dict[int, str] = {}
    for claim in claims:
        for word in itertools.chain(*claim.words) if claim.why else ():
            why.setdefault(word, claim.why)
    found: list[tuple[int, int, str]] = []
    for word in sorted(why):
        start, end = where[word]
        if found and word - 1 in why and found[-1][2] == why[word]:  # merges adjacent words into one span
            found[-1] = (found[-1][0], end, why[word])
        else:
            found.append((start, end, why[word]))
    return MarkedCaption(len(claims), sum(not claim.why for claim in claims), tuple(found))


def count_claims(caption: str | ParsedCaption, scene: Scene) -> ClaimCounts:
    """Counts the true and false claims that a caption makes about a scene. Never raises; an empty caption makes no
    claims.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    claims, things = _checked_claims(parsed, scene), len(scene.objects)
    why = Counter(claim.why for claim in claims)
    attributes = dict.fromkeys(FIELDS[: 5 if scene.length > 1 else 4], things) | {"relation": things - 1, "ground": 1}
    kinds = {}
    for kind in FACT_KINDS:
        of_kind = [claim for claim in claims if claim.kind == kind]
        correct, recalled = sum(not claim.why for claim in of_kind), sum(len(claim.facts) for claim in of_kind)
        kinds[kind] = KindCounts(len(of_kind), correct, attributes.get(kind, 0), recalled)
    return ClaimCounts(
        claims=len(claims),
        correct=why[""],
        bound=sum(claim.bound for claim in claims),
        binding_errors=why[ELSEWHERE],
        hallucinations=why[NOWHERE] + why[TOO_MANY],
        relation_errors=kinds["relation"].claims - kinds["relation"].correct,
        conflicts=why[CONTRADICTED],
        attributes=sum(attributes.values()),
        recalled=sum(len(claim.facts) for claim in claims),
        repetitions=_count_repetitions(parsed, scene),
        words=len(parsed.words),
        kinds=kinds,
    )


def _count_repetitions(parsed: ParsedCaption, scene: Scene) -> int:
    """Counts repeated runs of words, mentions beyond the number of objects that fit them, and repeated backgrounds and
    relations.
    """
    total = len(parsed.grounds) - len(set(parsed.grounds)) + len(parsed.relations) - len(set(parsed.relations))
    times_mentioned: dict[object, list[Mention]] = {}
    for mention in parsed.mentions:
        times_mentioned.setdefault(mention.signature(), []).append(mention)
    for same in times_mentioned.values():
        total += max(0, len(same) - max(1, sum(_fits(same[0], facts) for facts in scene.facts)))
    return total + _repeated_runs(parsed.words)


def _fits(mention: Mention, facts: tuple[str, ...]) -> bool:
    return (not mention.shape or mention.shape == facts[0]) and all(
        values == (facts[PLACE[slot]],) for slot, values in mention.values.items()
    )


def _repeated_runs(words: tuple[str, ...]) -> int:
    """Counts runs of words that occur twice in a row ("on grass on grass" counts 1)."""
    total, at, end = 0, 0, len(words)
    while at < end - 1:
        longest = (end - at) // 2
        again = next((n for n in range(1, longest + 1) if words[at : at + n] == words[at + n : at + 2 * n]), 0)
        total += bool(again)
        at += again or 1
    return total
