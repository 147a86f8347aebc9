"""True and false claims of captions, counted exactly against a scene.

A caption claims: the shape of every object that it names, every attribute bound to an object, every relation, the
ground, the number in "three things", and attributes bound to nothing. A mention means the object under which most of
its claims are true (`matching.align`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .matching import align, related
from .parser import Mention, ParsedCaption, Words, parse_caption, token_spans
from .repetitions import count_repetitions
from .vocabulary import FIELDS

if TYPE_CHECKING:
    from .world import Scene


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """Counts for one caption.

    claims               all claims, see the module
    correct              those that are true
    bound                claims of a shape or an attribute of some object
    binding_errors       bound claims that are false, though the value is in the scene: on another object
    hallucinations       claims (shape, attribute, ground) whose value is nowhere in the scene, and the shape of
                         every object beyond the number in the scene
    relation_errors      relations claimed that do not hold
    conflicts            bound values that fit the object but contradict another value for the same slot ("red blue
                         square"), and a true ground beside another one
    attributes           attributes of the scene: four an object (five in clips), n-1 relations, one ground
    recalled             those that the caption states, true and bound; relations count by the objects they connect
    repetitions          immediate repeats of a run of words; repeated mentions beyond the number of objects that
                         fit them; repeated grounds and relations
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

    @property
    def attribute_precision(self) -> float:
        """Correct of all claims, 0..1; NaN for a caption that claims nothing."""
        return self.correct / self.claims if self.claims else float("nan")

    @property
    def attribute_recall(self) -> float:
        """Recalled of the scene's attributes, 0..1."""
        return self.recalled / self.attributes


Fact = tuple[object, ...]
"""What of a scene a true claim states: an attribute of an object, a relation of two objects, or the ground."""

# Reasons why a claim is false, as pages print them.
NOWHERE = "not in the picture"
ELSEWHERE = "true of another object only"
CONTRADICTED = "contradicted by another word"
NOT_SO = "not so in the picture"
TOO_MANY = "more than there are"


class _ClaimCounter:
    """The tally of one caption. ``false`` has the words of each false claim, and the reason; ``true`` has the words of
    each true one, and which fact of the scene it states."""

    def __init__(self, scene: Scene, meant: tuple[int, ...]) -> None:
        self.scene, self.facts, self.meant = scene, scene.facts, meant
        self.claims = self.correct = self.bound = self.binding = self.invented = 0
        self.wrong_relations = self.conflicts = self.recalled = 0
        self.false: list[tuple[Words, str]] = []
        self.true: list[tuple[Words, Fact]] = []

    def mention(self, mention: Mention, at: int) -> None:
        thing = self.facts[at] if at >= 0 else None
        if mention.shape:
            self.value(0, (mention.shape,), thing, mention, excess=thing is None)
        for slot, values in mention.values.items():
            self.value(FIELDS.index(slot), values, thing, mention)

    def value(
        self, slot: int, values: tuple[str, ...], thing: tuple[str, ...] | None, mention: Mention, excess: bool = False
    ) -> None:
        self.claims += len(values)
        self.bound += len(values)
        for value in values:
            there = any(f[slot] == value for f in self.facts)
            if thing is not None and thing[slot] == value:
                if len(values) == 1:
                    self.correct += 1
                    self.recalled += 1
                    self.true.append((mention.words.get((FIELDS[slot], value), ()), (FIELDS[slot], thing)))
                    continue
                self.conflicts += 1
                why = CONTRADICTED
            elif excess or not there:
                self.invented += 1
                why = TOO_MANY if there else NOWHERE
            else:
                self.binding += 1
                why = ELSEWHERE
            self.false.append((mention.words.get((FIELDS[slot], value), ()), why))

    def grounds(self, parsed: ParsedCaption) -> None:
        grounds = set(parsed.grounds)
        self.claims += len(grounds)
        for ground in grounds:
            if ground != self.scene.ground:
                self.invented += 1
                why = NOWHERE
            elif len(grounds) == 1:
                self.correct += 1
                self.recalled += 1
                self.true += [(words, ("ground",)) for words in parsed.claim_words.grounds]
                continue
            else:
                self.conflicts += 1
                why = CONTRADICTED
            self.mark_false(ground, parsed.grounds, parsed.claim_words.grounds, why)

    def loose(self, parsed: ParsedCaption) -> None:
        loose = set(parsed.loose)
        self.claims += len(loose)
        for slot, value in loose:
            if any(f[FIELDS.index(slot)] == value for f in self.facts):
                self.correct += 1
            else:
                self.invented += 1
                self.mark_false((slot, value), parsed.loose, parsed.claim_words.loose, NOWHERE)

    def relations(self, parsed: ParsedCaption) -> None:
        group = list(range(len(self.facts)))  # objects that true relations connect share a number
        for claim in dict.fromkeys(parsed.relations):
            self.claims += 1
            if not related(claim, self.meant, self.scene.objects):
                self.wrong_relations += 1
                self.mark_false(claim, parsed.relations, parsed.claim_words.relations, NOT_SO)
                continue
            self.correct += 1
            first, *others = (self.meant[int(m)] for m in claim[1:])
            for other in others:
                if group[first] != group[other]:
                    self.recalled += 1
                    words = parsed.claim_words.relations[parsed.relations.index(claim)]
                    self.true.append((words, ("relation", *sorted((first, other)))))
                    old, new = group[other], group[first]
                    group = [new if number == old else number for number in group]

    def number(self, parsed: ParsedCaption) -> None:
        if parsed.number is None:
            return
        self.claims += 1
        if parsed.number == len(self.scene.objects):
            self.correct += 1
        else:
            self.false.append((parsed.claim_words.number, NOT_SO))

    def mark_false(self, claim: object, claims: Sequence[object], claim_words: Sequence[Words], why: str) -> None:
        """Mark every occurrence of a false claim."""
        self.false += [(words, why) for own, words in zip(claims, claim_words, strict=True) if own == claim]


def _count(parsed: ParsedCaption, scene: Scene) -> _ClaimCounter:
    _, meant = align(parsed, scene)
    count = _ClaimCounter(scene, meant)
    for mention, at in zip(parsed.mentions, meant, strict=True):
        count.mention(mention, at)
    count.grounds(parsed)
    count.loose(parsed)
    count.relations(parsed)
    count.number(parsed)
    return count


@dataclass(frozen=True, slots=True)
class MarkedCaption:
    """A caption's claims: ``correct`` of ``claims`` are true; ``false`` are (start, end, reason) of the words of the
    others, in characters of the caption, ascending."""

    claims: int
    correct: int
    false: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class StatedClaim:
    """One claim of a caption: ``words`` by number, and the ``fact`` that it states; None where it is false."""

    words: Words
    fact: Fact | None


def stated_claims(caption: str, scene: Scene) -> list[StatedClaim]:
    """The claims of a caption one by one, by the rules of `count_claims`; `ClaimCounts.attributes` counts the facts.

    Claims that can state no fact of their own are left out, true or false: a number of objects, and an attribute of no
    object; and true relations that follow from others. Never raises.
    """
    parsed = parse_caption(caption)
    count = _count(parsed, scene)
    no_fact = {(), parsed.claim_words.number, *parsed.claim_words.loose}
    stated = [StatedClaim(words, fact) for words, fact in count.true]
    false = [StatedClaim(words, None) for words, _ in count.false]
    return [claim for claim in (*stated, *false) if claim.words not in no_fact]


def mark_caption(caption: str, scene: Scene) -> MarkedCaption:
    """The words of a caption whose claims are false, by the rules of `count_claims`. Never raises."""
    count, where = _count(parse_caption(caption), scene), token_spans(caption)
    why: dict[int, str] = {}
    for words, reason in count.false:
        for word in words:
            why.setdefault(word, reason)
    found: list[tuple[int, int, str]] = []
    for word in sorted(why):
        start, end = where[word]
        if found and word - 1 in why and found[-1][2] == why[word]:  # adjacent words are one span
            found[-1] = (found[-1][0], end, why[word])
        else:
            found.append((start, end, why[word]))
    return MarkedCaption(count.claims, count.correct, tuple(found))


def count_claims(caption: str | ParsedCaption, scene: Scene) -> ClaimCounts:
    """The true and false claims of a caption about a scene. Never raises; an empty caption claims nothing."""
    return check_claims(parse_caption(caption) if isinstance(caption, str) else caption, scene)[0]


def check_claims(parsed: ParsedCaption, scene: Scene) -> tuple[ClaimCounts, list[tuple[Words, str]]]:
    """`count_claims` of a parsed caption, and the words of each false claim with the reason."""
    count = _count(parsed, scene)
    things = len(scene.objects)
    counts = ClaimCounts(
        claims=count.claims,
        correct=count.correct,
        bound=count.bound,
        binding_errors=count.binding,
        hallucinations=count.invented,
        relation_errors=count.wrong_relations,
        conflicts=count.conflicts,
        attributes=things * (5 if scene.length > 1 else 4) + things,
        recalled=count.recalled,
        repetitions=count_repetitions(parsed, scene),
        words=len(parsed.words),
    )
    return counts, count.false
