"""Merges the facts of several captions of one scene into one caption. Uses only the captions, no ground truth.

A thing in one caption is matched with the thing in another caption that most likely is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tellapart.boost.scene_facts import SceneFacts, Thing, facts_of
from tellapart.boost.scene_sentence import sentence_of
from tellapart.scenes.relations import INVERSE

MAX_COMPARED = 6  # maximum number of things in a caption for which all assignments are compared


def blend(captions: Sequence[str]) -> str:
    """Merges all captions of one picture into one caption without repetitions. Assumes that all captions are true."""
    facts = [facts_of(caption) for caption in captions]
    facts.sort(key=lambda each: sum(map(len, each.things)) + len(each.relations), reverse=True)
    whole = SceneFacts()
    for named in (True, False):  # "a red thing" can be resolved only when all other things are known
        for each in facts:
            _take_in(whole, each, named)
    return sentence_of(whole)


def _take_in(whole: SceneFacts, facts: SceneFacts, named: bool) -> None:
    """Adds the facts of another caption. ``named``: whether to add new things only if they have a name.

    "A red thing" is new if it contradicts every known thing that is still unmatched. Otherwise, it is left out.
    """
    meant = _matched(facts, whole, _same_thing, agreeing=1.0)
    others = [thing for number, thing in enumerate(whole.things) if number not in meant]
    for at, thing in enumerate(facts.things):
        new = "shape" in thing if named else thing and all(_contradict(thing, other) for other in others)
        if meant[at] < 0 and new:
            meant[at] = len(whole.things)
            whole.things.append({})
        if meant[at] >= 0:
            whole.things[meant[at]] = thing | whole.things[meant[at]]
    _relate(whole, facts, meant)
    whole.ground = whole.ground or facts.ground
    whole.number = max(whole.number, facts.number)


def _relate(whole: SceneFacts, facts: SceneFacts, meant: Sequence[int]) -> None:
    """Adds the relations in ``facts`` to ``whole``. ``meant`` maps the things in ``facts`` to those in ``whole``."""
    for (i, j), relation in facts.relations.items():
        if min(meant[i], meant[j]) >= 0:
            whole.relate(meant[i], meant[j], relation)


def add(correct: str, new: str) -> str:
    """Adds the facts of the new caption to the correct one, which takes precedence if they contradict each other."""
    whole, theirs = facts_of(correct), facts_of(new)
    meant = [-1] * len(theirs.things)
    for at, number in enumerate(_matched(whole, theirs, _alike, agreeing=2.0)):
        if number >= 0:
            meant[number] = at
    for number, thing in enumerate(theirs.things):
        if meant[number] < 0:
            meant[number] = len(whole.things)
            whole.things.append({})
        whole.things[meant[number]] = thing | whole.things[meant[number]]
    _relate(whole, theirs, meant)
    whole.ground = whole.ground or theirs.ground
    return sentence_of(whole)


def _same_thing(one: Thing, other: Thing) -> float | None:
    """Scores whether things in two true captions are the same. Returns None if they share no slot or contradict each
    other.
    """
    shared = one.keys() & other.keys()
    return sum(map(_weight, shared)) if shared and not _contradict(one, other) else None


def _alike(ours: Thing, theirs: Thing) -> float:
    """Scores how likely two things are the same if one caption can be wrong. Even the worst match has a positive score,
    so it is better than no match.
    """
    shared = ours.keys() & theirs.keys()
    return max(10.0 + sum(_weight(slot) * (1 if ours[slot][0] == theirs[slot][0] else -1) for slot in shared), 1.0)


def _weight(slot: str) -> float:
    return 4.0 if slot == "shape" else 2.0


def _contradict(one: Thing, other: Thing) -> bool:
    return any(one[slot][0] != other[slot][0] for slot in one.keys() & other.keys())


def _matched(
    theirs: SceneFacts, ours: SceneFacts, score: Callable[[Thing, Thing], float | None], agreeing: float
) -> list[int]:
    """Assigns one of the things in ``ours``, or -1, to each thing in ``theirs``, so that the total score is maximal.
    Assigns no thing twice.

    score: returns the score of a pair, or None if the two cannot be the same thing.
    agreeing: added for each relation that both captions state for the same things, and subtracted for each relation
    that they contradict.
    """
    scores: list[dict[int, float]] = []
    for thing in theirs.things[:MAX_COMPARED]:
        pairs = ((number, score(thing, other)) for number, other in enumerate(ours.things))
        scores.append({**{number: won for number, won in pairs if won is not None}, -1: 0.0})

    def total(meant: Sequence[int]) -> float:
        won = sum(row[number] for row, number in zip(scores, meant, strict=True))
        return won + agreeing * _agreement(theirs, ours, meant)

    best = max(_assignments(scores), key=total)
    return [*best, *[-1] * (len(theirs.things) - len(best))]


def _assignments(scores: Sequence[Mapping[int, float]]) -> Iterator[tuple[int, ...]]:
    if not scores:
        yield ()
        return
    for meant in _assignments(scores[:-1]):
        yield from ((*meant, number) for number in scores[-1] if number < 0 or number not in meant)


def _agreement(theirs: SceneFacts, ours: SceneFacts, meant: Sequence[int]) -> int:
    """Returns the number of relations on which both captions agree, minus the number that contradict each other."""
    place = {number: our for number, our in enumerate(meant) if our >= 0}
    total = 0
    for (i, j), (kind, _) in theirs.relations.items():
        if kind != "near" and i in place and j in place:
            own = ours.between(place[i], place[j])
            total += 0 if own is None else (own[0] == kind) - (own[0] == INVERSE[kind])
    return total
