"""Faithfulness of boosted captions: words that no source has, on any data; false claims, exactly, on `scenes`.

Words are compared by lemma, as HanTa (the extra ``words``) gives it. That a word is new does not make it false: a
describer is there to say new things. What an answer adds to the texts that it was to be made of is another matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tellapart.boost.stages import NAMES, TITLES
from tellapart.scenes.matching import align
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.truth import count_claims

if TYPE_CHECKING:
    from tellapart.scenes.world import Scene

Analyser = Callable[[str], Sequence[tuple[str, str, str]]]
# CLAWS 5: nouns and names, adjectives, verbs other than be, have and do, numbers.
CONTENT = ("NN", "NP", "AJ", "VV", "CRD", "ORD")
_SLOTS = ("shape", "colour", "size", "texture", "motion")
_GROUND = -1  # where a claim about an object has the object's number

Claim = tuple[int, str, str]  # object's number or _GROUND, slot, value


@dataclass(frozen=True, slots=True)
class Share:
    """``new`` of ``total`` content words."""

    new: int = 0
    total: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.new + other.new, self.total + other.total)

    @property
    def percent(self) -> float:
        """NaN without a word."""
        return 100 * self.new / self.total if self.total else float("nan")


def content_words(text: str, analyse: Analyser) -> list[tuple[str, str]]:
    """(word, lemma) of the content words: nouns, adjectives, verbs."""
    return [(word, lemma) for word, lemma, tag in analyse(text) if tag.startswith(CONTENT)]


def new_words(text: str, sources: Iterable[str], analyse: Analyser) -> list[str]:
    """The content words of ``text`` that no source has, neither as they stand nor by their lemma."""
    known = {form for source in sources for word, lemma, _ in analyse(source) for form in (word, lemma)}
    return [word for word, lemma in content_words(text, analyse) if word not in known and lemma not in known]


def sources_of(references: Sequence[str], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The texts that each stage's caption was to be made of; a describer is given none, and is left out."""
    return {"blend": list(references), "holistic": [texts[name] for name in ("blend", "describe") if name in texts]}


def new_word_spans(text: str, sources: Sequence[str], analyse: Analyser) -> list[tuple[int, int, str]]:
    """(start, end, why) in characters of every content word of ``text`` that no source has."""
    plain = text.replace("’", "'")
    words = dict.fromkeys(new_words(text, sources, analyse))
    found = {match.span() for word in words for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", plain, re.I)}
    return [(start, end, "in no source") for start, end in sorted(found)]


def share_of_new_words(text: str, sources: Iterable[str], analyse: Analyser) -> Share:
    """How many of the content words are `new_words`."""
    return Share(len(new_words(text, sources, analyse)), len(content_words(text, analyse)))


@dataclass
class NewWords:
    """Shares of content words. ``in_no_reference``: of a stage's, those that no reference has. ``in_no_source``: those
    that nothing has which the stage was given (a describer is given no text). ``left_out``: of the describer's that no
    reference has, those that the holistic caption has not either: conflicts, and what it found verbose.
    """

    in_no_reference: dict[str, Share] = field(default_factory=dict)
    in_no_source: dict[str, Share] = field(default_factory=dict)
    left_out: Share = field(default_factory=Share)

    def add(self, references: Sequence[str], texts: Mapping[str, str], analyse: Analyser) -> None:
        """Count one item."""
        people, given = list(references), sources_of(references, texts)
        for stage, text in texts.items():
            if people:
                share = share_of_new_words(text, people, analyse)
                self.in_no_reference[stage] = self.in_no_reference.get(stage, Share()) + share
            if stage in given:
                share = share_of_new_words(text, given[stage], analyse)
                self.in_no_source[stage] = self.in_no_source.get(stage, Share()) + share
        if "describe" in texts and "holistic" in texts:
            new = new_words(texts["describe"], people, analyse)
            lost = new_words(texts["describe"], [*people, texts["holistic"]], analyse)
            self.left_out += Share(len(lost), len(new))

    def to_json(self) -> dict[str, Any]:
        """Percent of each, by stage."""
        value: dict[str, Any] = {
            name: {stage: finite(shares[stage].percent) for stage in NAMES if stage in shares}
            for name, shares in (("in_no_reference", self.in_no_reference), ("in_no_source", self.in_no_source))
        }
        return value | {"left_out": finite(self.left_out.percent)}

    def lines(self, sample: int) -> Iterator[str]:
        """A sentence for each stage that had answers."""
        for stage in NAMES:
            if stage in self.in_no_reference:
                line = f"{TITLES[stage]}: {percent(self.in_no_reference[stage].percent)} % of its content words are in "
                line += "no reference"
                if stage in self.in_no_source:
                    line += f", {percent(self.in_no_source[stage].percent)} % in nothing that it was made of"
                yield f"{line} ({sample:,} items)"
        if self.left_out.total:
            yield (
                f"HolisticCap left out {percent(self.left_out.percent)} % of the description's words that no "
                f"reference has ({sample:,} items)"
            )


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
    """What became of the errors of ``texts["describe"]`` in ``texts["holistic"]``, by the truth.

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
    value = {(n, slot, value) for n, facts in enumerate(scene.facts) for slot, value in zip(_SLOTS, facts, strict=True)}
    return {*value, (_GROUND, "ground", scene.ground)}


def finite(value: float) -> float | None:
    """None in place of NaN, which JSON lacks."""
    return round(value, 3) if math.isfinite(value) else None


def percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "–"
