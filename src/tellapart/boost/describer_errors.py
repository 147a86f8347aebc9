"""Counts a describer's errors on `scenes`, whose ground truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from tellapart.scenes.alignment import align
from tellapart.scenes.claims import count_claims
from tellapart.scenes.objects import FIELDS
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.world import Scene

_GROUND = -1  # replaces an object's number in a claim about the background
Claim = tuple[int, str, str]  # (object number or _GROUND, slot, value)


@dataclass(frozen=True, slots=True)
class Errors:
    """Counts of the describer's false claims on `scenes`.

    made: all false claims.
    contradicted: false claims that the references contradict.
    kept_out: contradicted false claims that are absent from the final caption.
    passed_on: uncontradicted false claims that are in the final caption.
    """

    made: int = 0
    contradicted: int = 0
    kept_out: int = 0
    passed_on: int = 0

    def __add__(self, other: Errors) -> Errors:
        return Errors(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def describer_errors(texts: Mapping[str, str], references: Iterable[str], scene: Scene) -> Errors:
    """Counts the false values in ``texts["describe"]``, and how many of them also occur in ``texts["holistic"]``.

    A reference contradicts an error if the reference would be false of a picture for which the error were true.
    """
    references = list(references)
    wrong, final = _claims(texts["describe"], scene) - _truth(scene), _claims(texts["holistic"], scene)
    contradicted = {claim for claim in wrong if not _all_true(references, _changed(scene, claim))}
    return Errors(len(wrong), len(contradicted), len(contradicted - final), len((wrong - contradicted) & final))


def _claims(text: str, scene: Scene) -> set[Claim]:
    """Returns the values claimed for objects or the background. Aligns each mention with the best-matching object."""
    parsed = parse_caption(text)
    claims = {(_GROUND, "ground", ground) for ground in parsed.grounds}
    for mention, number in zip(parsed.mentions, align(parsed, scene)[1], strict=True):
        stated = mention.values | ({"shape": (mention.shape,)} if mention.shape else {})
        claims |= {(number, slot, value) for slot, values in stated.items() for value in values if number >= 0}
    return claims


def _truth(scene: Scene) -> set[Claim]:
    """Returns a scene's true values: those of every object, and the background."""
    true = {(n, slot, value) for n, facts in enumerate(scene.facts) for slot, value in zip(FIELDS, facts, strict=True)}
    return true | {(_GROUND, "ground", scene.ground)}


def _changed(scene: Scene, claim: Claim) -> Scene:
    number, slot, value = claim
    if number == _GROUND:
        return replace(scene, ground=value)
    change: dict[str, Any] = {slot: value}
    objects = [replace(each, **change) if n == number else each for n, each in enumerate(scene.objects)]
    return replace(scene, objects=tuple(objects))


def _all_true(captions: Iterable[str], scene: Scene) -> bool:
    counted = [count_claims(caption, scene) for caption in captions]
    return all(counts.correct == counts.claims for counts in counted)
