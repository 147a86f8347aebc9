"""Captions against the truth of a scene: what is right, what is invented, and whom an exact listener takes.

Claims. A caption claims: the shape of every object it names, every attribute bound to one, every relation,
the ground, the number in "three things", and attributes bound to nothing. A mention means the object under
which most is true (`matching.align`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .matching import CLAIM, align, related
from .parser import Mention, ParsedCaption, Words, parse_caption, token_spans
from .relations import INVERSE

if TYPE_CHECKING:
    from .world import Scene

__all__ = [
    "ClaimCounts",
    "GraphScore",
    "MarkedCaption",
    "Mention",
    "ParsedCaption",
    "caption_rates",
    "corpus_rates",
    "corpus_scene_graph_f",
    "count_claims",
    "listener_accuracy",
    "listener_probabilities",
    "mark_caption",
    "parse_caption",
    "scene_graph_f",
]  # fmt: skip

_FIELDS = ("shape", "colour", "size", "texture", "motion")


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """Counts for one caption.

    claims               all claims, see above
    correct              of them true
    bound                claims of a shape or an attribute of some object
    binding_errors       bound claims that are false, though the value is in the scene: on another object
    hallucinations       claims (shape, attribute, ground) whose value is nowhere in the scene, and the shape of
                         every object named beyond the number that there are
    relation_errors      relations claimed that do not hold
    conflicts            bound values that fit the object but are contradicted by another value for the same
                         slot ("red blue square"), and grounds said beside another
    attributes           what the scene has to tell: four a object (five in clips), n-1 relations, one ground
    recalled             of them told, rightly and bound; relations count by the objects that they tie together
    repetitions          immediate repeats of a run of words; mentions said again beyond the number of objects
                         that fit them; grounds and relations said again
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


# Why a claim is not true, as a page says it.
NOWHERE = "not in the picture"
ELSEWHERE = "true of another object only"
CONTRADICTED = "contradicted by another word"
NOT_SO = "not so in the picture"
TOO_MANY = "more than there are"


class _ClaimCounter:
    """The tally of one caption. ``false`` has the words of each claim that is not true, and why."""

    def __init__(self, scene: Scene, meant: tuple[int, ...]) -> None:
        self.scene, self.facts, self.meant = scene, scene.facts, meant
        self.claims = self.correct = self.bound = self.binding = self.invented = 0
        self.wrong_relations = self.conflicts = self.recalled = 0
        self.false: list[tuple[Words, str]] = []

    def mention(self, mention: Mention, at: int) -> None:
        thing = self.facts[at] if at >= 0 else None
        if mention.shape:
            self.value(0, (mention.shape,), thing, mention, excess=thing is None)
        for slot, values in mention.values.items():
            self.value(_FIELDS.index(slot), values, thing, mention)

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
                    continue
                self.conflicts += 1
                why = CONTRADICTED
            elif excess or not there:
                self.invented += 1
                why = TOO_MANY if there else NOWHERE
            else:
                self.binding += 1
                why = ELSEWHERE
            self.false.append((mention.words.get((_FIELDS[slot], value), ()), why))

    def grounds(self, parsed: ParsedCaption) -> None:
        said = set(parsed.grounds)
        self.claims += len(said)
        for ground in said:
            if ground != self.scene.ground:
                self.invented += 1
                why = NOWHERE
            elif len(said) == 1:
                self.correct += 1
                self.recalled += 1
                continue
            else:
                self.conflicts += 1
                why = CONTRADICTED
            self.refuse(ground, parsed.grounds, parsed.claim_words.grounds, why)

    def loose(self, parsed: ParsedCaption) -> None:
        said = set(parsed.loose)
        self.claims += len(said)
        for slot, value in said:
            if any(f[_FIELDS.index(slot)] == value for f in self.facts):
                self.correct += 1
            else:
                self.invented += 1
                self.refuse((slot, value), parsed.loose, parsed.claim_words.loose, NOWHERE)

    def relations(self, parsed: ParsedCaption) -> None:
        tied = list(range(len(self.facts)))
        for claim in dict.fromkeys(parsed.relations):
            self.claims += 1
            if not related(claim, self.meant, self.scene.objects):
                self.wrong_relations += 1
                self.refuse(claim, parsed.relations, parsed.claim_words.relations, NOT_SO)
                continue
            self.correct += 1
            first, *others = (self.meant[int(m)] for m in claim[1:])
            for other in others:
                if tied[first] != tied[other]:
                    self.recalled += 1
                    old, new = tied[other], tied[first]
                    tied = [new if t == old else t for t in tied]

    def number(self, parsed: ParsedCaption) -> None:
        if parsed.number is None:
            return
        self.claims += 1
        if parsed.number == len(self.scene.objects):
            self.correct += 1
        else:
            self.false.append((parsed.claim_words.number, NOT_SO))

    def refuse(self, claim: object, said: Sequence[object], claim_words: Sequence[Words], why: str) -> None:
        """A claim that may have been made more than once is false wherever it was."""
        self.false += [(words, why) for own, words in zip(said, claim_words, strict=True) if own == claim]


def _tally(parsed: ParsedCaption, scene: Scene) -> _ClaimCounter:
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
    """A caption's claims: ``correct`` of ``claims`` are true; ``false`` are (start, end, why), in characters of the
    caption, ascending, of the words that make the others."""

    claims: int
    correct: int
    false: tuple[tuple[int, int, str], ...]


def mark_caption(caption: str, scene: Scene) -> MarkedCaption:
    """Which words of a caption claim what is not true of the scene, by the rules of `count_claims`. Never raises."""
    count, where = _tally(parse_caption(caption), scene), token_spans(caption)
    why: dict[int, str] = {}
    for words, reason in count.false:
        for word in words:
            why.setdefault(word, reason)
    found: list[tuple[int, int, str]] = []
    for word in sorted(why):
        start, end = where[word]
        if found and word - 1 in why and found[-1][2] == why[word]:  # words side by side are marked as one
            found[-1] = (found[-1][0], end, why[word])
        else:
            found.append((start, end, why[word]))
    return MarkedCaption(count.claims, count.correct, tuple(found))


def count_claims(caption: str | ParsedCaption, scene: Scene) -> ClaimCounts:
    """What a caption gets right and wrong about a scene. Never raises; an empty caption claims nothing."""
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    count = _tally(parsed, scene)
    things = len(scene.objects)
    return ClaimCounts(
        claims=count.claims,
        correct=count.correct,
        bound=count.bound,
        binding_errors=count.binding,
        hallucinations=count.invented,
        relation_errors=count.wrong_relations,
        conflicts=count.conflicts,
        attributes=things * (5 if scene.length > 1 else 4) + things,
        recalled=count.recalled,
        repetitions=_repetitions(parsed, scene),
        words=len(parsed.words),
    )


def _repetitions(parsed: ParsedCaption, scene: Scene) -> int:
    total = len(parsed.grounds) - len(set(parsed.grounds)) + len(parsed.relations) - len(set(parsed.relations))
    said: dict[object, int] = {}
    for mention in parsed.mentions:
        said[mention.signature()] = said.get(mention.signature(), 0) + 1
    for mention in parsed.mentions:
        times = said.pop(mention.signature(), 0)
        if times > 1:
            total += max(0, times - max(1, sum(_fits(mention, facts) for facts in scene.facts)))
    return total + _stutters(parsed.words)


def _fits(mention: Mention, facts: tuple[str, ...]) -> bool:
    return (not mention.shape or mention.shape == facts[0]) and all(
        values == (facts[_FIELDS.index(slot)],) for slot, values in mention.values.items()
    )


def _stutters(words: tuple[str, ...]) -> int:
    """How often a run of words comes twice in a row ("on grass on grass" once)."""
    total, at, end = 0, 0, len(words)
    while at < end - 1:
        longest = (end - at) // 2
        again = next((n for n in range(1, longest + 1) if words[at : at + n] == words[at + n : at + 2 * n]), 0)
        total += bool(again)
        at += again or 1
    return total


def caption_rates(judgements: Sequence[ClaimCounts]) -> dict[str, np.ndarray]:
    """The values of `corpus_rates` caption by caption, in percent; NaN where a caption's denominator is 0."""

    def ratio(above: list[int], below: list[int]) -> np.ndarray:
        top, bottom = np.array(above, float), np.array(below, float)
        return 100 * np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)

    js = judgements
    return {
        "attribute_precision": ratio([j.correct for j in js], [j.claims for j in js]),
        "attribute_recall": ratio([j.recalled for j in js], [j.attributes for j in js]),
        "hallucination_rate": ratio([j.hallucinations for j in js], [j.claims for j in js]),
        "binding_error_rate": ratio([j.binding_errors for j in js], [j.bound for j in js]),
        "repetition_rate": ratio([j.repetitions > 0 for j in js], [1] * len(js)),
    }


def corpus_rates(judgements: Sequence[ClaimCounts]) -> dict[str, float]:
    """Rates over a corpus, in percent, counts summed over captions before dividing; NaN where nothing is to divide.

    attribute_precision  correct claims of all claims
    attribute_recall     attributes told of all attributes that the scenes have
    hallucination_rate   hallucinations of all claims
    binding_error_rate   binding errors of all bound claims
    repetition_rate      captions with at least one repetition of all captions
    """

    def rate(above: Iterable[int], below: Iterable[int]) -> float:
        bottom = sum(below)
        return 100 * sum(above) / bottom if bottom else float("nan")

    js = judgements
    return {
        "attribute_precision": rate((j.correct for j in js), (j.claims for j in js)),
        "attribute_recall": rate((j.recalled for j in js), (j.attributes for j in js)),
        "hallucination_rate": rate((j.hallucinations for j in js), (j.claims for j in js)),
        "binding_error_rate": rate((j.binding_errors for j in js), (j.bound for j in js)),
        "repetition_rate": rate((j.repetitions > 0 for j in js), (1 for _ in js)),
    }


def agreement(caption: str | ParsedCaption, scene: Scene) -> int:
    """Claims satisfied less claims contradicted, in units of 1/64 claim.

    What is bound to an object, a relation, the ground and the number count whole; an attribute bound to
    nothing counts half. Values that contradict each other count as contradicted, all of them.
    """
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    # Ties by shape choose among assignments only: cut them off.
    score = align(parsed, scene)[0] // CLAIM * CLAIM
    grounds = set(parsed.grounds)
    if len(grounds) == 1:
        score += CLAIM if scene.ground in grounds else -CLAIM
    else:
        score -= CLAIM * len(grounds)
    if parsed.number is not None:
        score += CLAIM if parsed.number == len(scene.objects) else -CLAIM
    for slot, value in set(parsed.loose):
        there = any(f[_FIELDS.index(slot)] == value for f in scene.facts)
        score += CLAIM // 2 if there else -CLAIM // 2
    return score


def listener_probabilities(caption: str | ParsedCaption, candidates: Sequence[Scene]) -> np.ndarray:
    """probability_K that an exact listener picks each candidate: even among those that agree best.

    A caption that says nothing picks evenly among all. Raises ValueError without candidates.
    """
    if not candidates:
        raise ValueError("a listener needs at least one candidate")
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    if parsed.empty:
        return np.full(len(candidates), 1 / len(candidates))
    score_K = np.array([agreement(parsed, scene) for scene in candidates])
    best_K = score_K == score_K.max()
    return best_K / best_K.sum()


def listener_accuracy(
    captions: Sequence[str], candidates: Sequence[Sequence[Scene]], targets: Sequence[int] | None = None
) -> tuple[float, np.ndarray]:
    """Percent of captions whose target the exact listener picks, and the probability_N caption by caption.

    ``candidates[n]`` is the set of caption n; ``targets[n]`` its picture's number there (0 where None).
    """
    places = targets if targets is not None else [0] * len(captions)
    rows = zip(captions, candidates, places, strict=True)
    picked_N = np.array(
        [listener_probabilities(caption, scenes)[place] for caption, scenes, place in rows], dtype=float
    )
    return (100 * float(picked_N.mean()) if len(picked_N) else float("nan")), picked_N


@dataclass(frozen=True, slots=True)
class GraphScore:
    """Precision, recall and F of scene-graph tuples, 0..1."""

    precision: float
    recall: float
    f: float


def _graph_counts(caption: str | ParsedCaption, scene: Scene) -> tuple[int, int, int, int]:
    """Tuples said, of them true, tuples of the scene, of them said."""
    parsed = parse_caption(caption) if isinstance(caption, str) else caption
    said: set[tuple[str, ...]] = {("ground", g) for g in parsed.grounds}
    for mention in parsed.mentions:
        name = mention.shape or "thing"
        said.add((name,))
        for slot, values in mention.values.items():
            # Values that contradict each other match nothing.
            mark = () if len(values) == 1 else ("contradicted",)
            said |= {(name, slot, value, *mark) for value in values}
    for kind, *who in parsed.relations:
        names = [parsed.mentions[int(m)].shape or "thing" for m in who]
        said.add(_relation_tuple(str(kind), names))
    said.discard(("thing",))
    facts = scene.facts
    real: set[tuple[str, ...]] = {("ground", scene.ground)}
    for thing in facts:
        real.add((thing[0],))
        real |= {(thing[0], slot, value) for slot, value in zip(_FIELDS[1:], thing[1:], strict=True) if value}
    real |= {_relation_tuple(kind, [facts[i][0], facts[j][0]]) for kind, i, j in scene.chain}
    true = real | scene.true_relation_tuples
    return len(said), len(said & true), len(real), len(said & real)


def _relation_tuple(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """One form for "a left of b" and "b right of a"."""
    if kind == "between":
        return (kind, names[0], *sorted(names[1:]))
    if kind in ("right of", "below", "behind"):
        return (INVERSE[kind], names[1], names[0])
    return (kind, *(sorted(names) if kind == "near" else names))


def scene_graph_f(caption: str | ParsedCaption, scene: Scene) -> GraphScore:
    """F-score over scene-graph tuples in the manner of SPICE, without its parser's errors.

    Tuples: (shape), (shape, slot, value), (relation, shape, shape), (ground). Objects go by their shape's
    name, as in SPICE, so two stars are one node. Precision against all that is true, recall against the full
    description's tuples; 0 where the caption says nothing.
    """
    return _score(_graph_counts(caption, scene))


def corpus_scene_graph_f(captions: Sequence[str], scenes: Sequence[Scene]) -> GraphScore:
    """The same with tuples summed over a corpus before dividing."""
    counts = [_graph_counts(caption, scene) for caption, scene in zip(captions, scenes, strict=True)]
    said, true, real, told = (sum(c[k] for c in counts) for k in range(4))
    return _score((said, true, real, told))


def _score(counts: tuple[int, int, int, int]) -> GraphScore:
    said, true, real, told = counts
    precision = true / said if said else 0.0
    recall = told / real if real else 0.0
    both = precision + recall
    return GraphScore(precision, recall, 2 * precision * recall / both if both else 0.0)
