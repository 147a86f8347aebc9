"""Counts a describer's errors on scenes, whose ground truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tellapart.scenes.parser import parse_caption
from tellapart.scenes.truth import align, count_claims
from tellapart.scenes.vocabulary import FIELDS
from tellapart.scenes.world import Scene

_GROUND = -1  # replaces an object's number in a claim about the background
Claim = tuple[int, str, str]  # (object number or _GROUND, slot, value)


@dataclass(frozen=True, slots=True)
class Errors:
    """Counts of the describer's false claims on `scenes`: all, those that references contradict, and their outcomes.

    ``kept_out``: contradicted errors absent from the final caption. ``passed_on``: uncontradicted errors in the final
    caption.
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
    """Counts the false values in ``texts["describe"]``, and how many of them are in ``texts["holistic"]``.

    A reference contradicts an error if it would be false for the same picture with the error made true.
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
    """Returns the values claimed for objects or the background; aligns each mention with the best object."""
    reading = parse_caption(text)
    _, meant = align(reading, scene)
    found: set[Claim] = {(_GROUND, "ground", ground) for ground in reading.grounds}
    for mention, number in zip(reading.mentions, meant, strict=True):
        if number >= 0:
            found |= {(number, "shape", mention.shape)} if mention.shape else set()
            found |= {(number, slot, value) for slot, values in mention.values.items() for value in values}
    return found


def truth(scene: Scene) -> set[Claim]:
    """Returns all true values for a scene: those of every object, and the background."""
    value = {(n, slot, value) for n, facts in enumerate(scene.facts) for slot, value in zip(FIELDS, facts, strict=True)}
    return {*value, (_GROUND, "ground", scene.ground)}
