"""Counts a caption's true and false claims, based on its scene's ground truth.

A caption's claims are the shape of every object that it mentions, every attribute (whether bound to an object or not),
every relation, the background, and the number in "three things". A mention refers to the object for which most of its
claims are true (`align`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tellapart.language.judged_claims import Judged
from tellapart.scenes.alignment import PLACE, align, related
from tellapart.scenes.parser import Mention, ParsedCaption, Words, parse_caption, token_spans, tokens
from tellapart.scenes.vocabulary import FIELDS
from tellapart.scenes.world import Scene

FACT_KINDS = (*FIELDS, "relation", "ground", "number")
"""The kinds of claims. A number ("three things") is a kind of claim, but not a separate fact about the scene."""


@dataclass(slots=True)
class KindCounts:
    """The counts for one kind of claim (see `ClaimCounts`)."""

    claims: int = 0
    correct: int = 0
    attributes: int = 0
    recalled: int = 0


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


class _ClaimCounter:
    """Counts a caption's claims.

    ``false`` contains each false claim's words and the reason; ``true`` contains each true claim's words and the fact
    about the scene that it states.
    """

    def __init__(self, scene: Scene, meant: tuple[int, ...]) -> None:
        self.scene, self.facts, self.meant = scene, scene.facts, meant
        self.claims = self.correct = self.bound = self.binding = self.invented = 0
        self.wrong_relations = self.conflicts = self.recalled = 0
        self.kinds = {kind: KindCounts() for kind in FACT_KINDS}
        self.false: list[tuple[Words, str]] = []
        self.true: list[tuple[Words, Fact]] = []

    def tally(self, kind: str, claims: int = 0, correct: int = 0, recalled: int = 0) -> None:
        """Adds to the overall counts and to the counts for one kind of claim."""
        for total in (self, self.kinds[kind]):
            total.claims += claims
            total.correct += correct
            total.recalled += recalled

    def mention(self, mention: Mention, at: int) -> None:
        thing = self.facts[at] if at >= 0 else None
        if mention.shape:
            self.value(0, (mention.shape,), thing, mention, excess=thing is None)
        for slot, values in mention.values.items():
            self.value(PLACE[slot], values, thing, mention)

    def value(
        self, slot: int, values: tuple[str, ...], thing: tuple[str, ...] | None, mention: Mention, excess: bool = False
    ) -> None:
        self.tally(FIELDS[slot], claims=len(values))
        self.bound += len(values)
        for value in values:
            there = any(f[slot] == value for f in self.facts)
            if thing is not None and thing[slot] == value:
                if len(values) == 1:
                    self.tally(FIELDS[slot], correct=1, recalled=1)
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
        self.tally("ground", claims=len(grounds))
        for ground in grounds:
            if ground != self.scene.ground:
                self.invented += 1
                why = NOWHERE
            elif len(grounds) == 1:
                self.tally("ground", correct=1, recalled=1)
                self.true += [(words, ("ground",)) for words in parsed.claim_words.grounds]
                continue
            else:
                self.conflicts += 1
                why = CONTRADICTED
            self.mark_false(ground, parsed.grounds, parsed.claim_words.grounds, why)

    def loose(self, parsed: ParsedCaption) -> None:
        loose = set(parsed.loose)
        for slot, value in loose:
            self.tally(slot, claims=1)
            if any(f[PLACE[slot]] == value for f in self.facts):
                self.tally(slot, correct=1)
            else:
                self.invented += 1
                self.mark_false((slot, value), parsed.loose, parsed.claim_words.loose, NOWHERE)

    def relations(self, parsed: ParsedCaption) -> None:
        group = list(range(len(self.facts)))  # objects that true relations connect have the same number
        for claim in dict.fromkeys(parsed.relations):
            self.tally("relation", claims=1)
            if not related(claim, self.meant, self.scene.objects):
                self.wrong_relations += 1
                self.mark_false(claim, parsed.relations, parsed.claim_words.relations, NOT_SO)
                continue
            self.tally("relation", correct=1)
            first, *others = (self.meant[int(m)] for m in claim[1:])
            for other in others:
                if group[first] != group[other]:
                    self.tally("relation", recalled=1)
                    words = parsed.claim_words.relations[parsed.relations.index(claim)]
                    self.true.append((words, ("relation", *sorted((first, other)))))
                    old, new = group[other], group[first]
                    group = [new if number == old else number for number in group]

    def number(self, parsed: ParsedCaption) -> None:
        if parsed.number is None:
            return
        self.tally("number", claims=1)
        if parsed.number == len(self.scene.objects):
            self.tally("number", correct=1)
        else:
            self.false.append((parsed.claim_words.number, NOT_SO))

    def mark_false(self, claim: object, claims: Sequence[object], claim_words: Sequence[Words], why: str) -> None:
        """Marks every occurrence of a false claim."""
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
    parsed = parse_caption(caption)
    count = _count(parsed, scene)
    no_fact = {(), parsed.claim_words.number, *parsed.claim_words.loose}
    stated = [StatedClaim(words, fact) for words, fact in count.true]
    false = [StatedClaim(words, None) for words, _ in count.false]
    return [claim for claim in (*stated, *false) if claim.words not in no_fact]


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
    count, where = _count(parse_caption(caption), scene), token_spans(caption)
    why: dict[int, str] = {}
    for words, reason in count.false:
        for word in words:
            why.setdefault(word, reason)
    found: list[tuple[int, int, str]] = []
    for word in sorted(why):
        start, end = where[word]
        if found and word - 1 in why and found[-1][2] == why[word]:  # merges adjacent words into one span
            found[-1] = (found[-1][0], end, why[word])
        else:
            found.append((start, end, why[word]))
    return MarkedCaption(count.claims, count.correct, tuple(found))


def count_claims(caption: str | ParsedCaption, scene: Scene) -> ClaimCounts:
    """Counts the true and false claims that a caption makes about a scene. Never raises; an empty caption makes no
    claims.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    count = _count(parsed, scene)
    things = len(scene.objects)
    for kind in (*FIELDS[: 5 if scene.length > 1 else 4], "relation", "ground"):
        count.kinds[kind].attributes = {"relation": things - 1, "ground": 1}.get(kind, things)
    return ClaimCounts(
        claims=count.claims,
        correct=count.correct,
        bound=count.bound,
        binding_errors=count.binding,
        hallucinations=count.invented,
        relation_errors=count.wrong_relations,
        conflicts=count.conflicts,
        attributes=sum(counts.attributes for counts in count.kinds.values()),
        recalled=count.recalled,
        repetitions=count_repetitions(parsed, scene),
        words=len(parsed.words),
        kinds=count.kinds,
    )


def count_repetitions(parsed: ParsedCaption, scene: Scene) -> int:
    """Counts repeated runs of words, mentions beyond the number of objects that fit them, and repeated backgrounds and
    relations.
    """
    total = len(parsed.grounds) - len(set(parsed.grounds)) + len(parsed.relations) - len(set(parsed.relations))
    times_mentioned: dict[object, int] = {}
    for mention in parsed.mentions:
        times_mentioned[mention.signature()] = times_mentioned.get(mention.signature(), 0) + 1
    for mention in parsed.mentions:
        times = times_mentioned.pop(mention.signature(), 0)
        if times > 1:
            total += max(0, times - max(1, sum(_fits(mention, facts) for facts in scene.facts)))
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
