"""Errors of a describer on scenes, whose truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tellapart.scenes.parser import parse_caption
from tellapart.scenes.truth import align, count_claims
from tellapart.scenes.vocabulary import FIELDS
from tellapart.scenes.world import Scene

_GROUND = -1  # where a claim about an object has the object's number
Claim = tuple[int, str, str]  # object's number or _GROUND, slot, value


@dataclass(frozen=True, slots=True)
class Errors:
    """False values of the describer on `scenes`, those that people's captions contradict, and what became of them.

    ``kept_out`` of the contradicted ones are not in the final caption; ``passed_on`` of the others are.
    """

    made: int = 0
    contradicted: int = 0
    kept_out: int = 0
    passed_on: int = 0

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.made + other.made,
            self.contradicted + other.contradicted,
            self.kept_out + other.kept_out,
            self.passed_on + other.passed_on,
        )


def describer_errors(texts: Mapping[str, str], references: Iterable[str], scene: Scene) -> Errors:
    """Returns what became of the errors of ``texts["describe"]`` in ``texts["holistic"]``, by the truth.

    A reference contradicts an error where it would be false of a picture in which the error is right, all else equal.
    """
    wrong = claims(texts["describe"], scene) - truth(scene)
    final = claims(texts["holistic"], scene)
    people = list(references)
    contradicted = {claim for claim in wrong if not _all_true(people, _changed(scene, claim))}
    return Errors(len(wrong), len(contradicted), len(contradicted - final), len((wrong - contradicted) & final))


def _changed(scene: Scene, claim: Claim) -> Scene:
    number, slot, value = claim
    if number == _GROUND:
        return replace(scene, ground=value)
    objects = list(scene.objects)
    change: dict[str, Any] = {slot: value}
    objects[number] = replace(objects[number], **change)
    return replace(scene, objects=tuple(objects))


def _all_true(captions: Iterable[str], scene: Scene) -> bool:
    return all(counts.correct == counts.claims for counts in (count_claims(caption, scene) for caption in captions))


def claims(text: str, scene: Scene) -> set[Claim]:
    """Each value that a caption gives an object, or the ground; mentions mean the objects of which most is true."""
    reading = parse_caption(text)
    _, meant = align(reading, scene)
    found: set[Claim] = {(_GROUND, "ground", ground) for ground in reading.grounds}
    for mention, number in zip(reading.mentions, meant, strict=True):
        if number >= 0:
            found |= {(number, "shape", mention.shape)} if mention.shape else set()
            found |= {(number, slot, value) for slot, values in mention.values.items() for value in values}
    return found


def truth(scene: Scene) -> set[Claim]:
    """Every value of every object, and the ground."""
    value = {(n, slot, value) for n, facts in enumerate(scene.facts) for slot, value in zip(FIELDS, facts, strict=True)}
    return {*value, (_GROUND, "ground", scene.ground)}
