"""Counts a caption's true and false claims about a scene, the attributes that it recalls, and its repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tellapart.scenes.alignment import PLACE
from tellapart.scenes.checked_claims import CONTRADICTED, ELSEWHERE, NOWHERE, TOO_MANY, checked_claims
from tellapart.scenes.objects import FIELDS
from tellapart.scenes.parser import Mention, ParsedCaption, parse_caption
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

    claims               all claims (see `checked_claims`)
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


def count_claims(caption: str | ParsedCaption, scene: Scene) -> ClaimCounts:
    """Counts the true and false claims that a caption makes about a scene. Never raises; an empty caption makes no
    claims.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    claims, things = checked_claims(parsed, scene), len(scene.objects)
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
