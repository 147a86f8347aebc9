"""Aligns the mentions in a caption with the objects of its scene, so that most claims are true."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.scenes.objects import FIELDS, Object
from tellapart.scenes.parser import Mention, ParsedCaption
from tellapart.scenes.relations import between, holds
from tellapart.scenes.world import Scene

CLAIM = 64
"""The score of a true claim. A false claim scores minus this. A true shape scores one point more, to break ties."""
_EXACT = 6
PLACE = {slot: place for place, slot in enumerate(FIELDS)}  # the index of a slot in an object's facts


def worth(mention: Mention, thing: tuple[str, ...] | None) -> int:
    """Returns the score (true minus false claims) of a mention if it refers to ``thing``, or to no object if ``thing``
    is None.

    Two values for one slot contradict each other, so both values are false of any object.
    """
    score = 0
    if mention.shape:
        score = CLAIM + 1 if thing is not None and thing[0] == mention.shape else -CLAIM
    for slot, values in mention.values.items():
        true = thing is not None and len(values) == 1 and thing[PLACE[slot]] == values[0]
        score += CLAIM if true else -CLAIM * len(values)
    return score


def related(claim: Sequence[str | int], meant: Sequence[int], objects: Sequence[Object]) -> bool:
    """Returns whether a relation between mentions holds for the objects that the mentions refer to."""
    who = [meant[int(m)] for m in claim[1:]]
    if -1 in who or len(set(who)) < len(who):
        return False
    if claim[0] == "between":
        return between(objects, *who)
    return holds(str(claim[0]), objects, *who)


def align(parsed: ParsedCaption, scene: Scene) -> tuple[int, tuple[int, ...]]:
    """Returns the best score and, for each mention, the index of its object, or -1 if no object is left for it.

    Different mentions refer to different objects. For up to six mentions, the search is exact over attributes and
    relations. For more mentions, it optimizes only attributes, and scores the relations for the resulting assignment.
    """
    count = len(scene.facts)
    table = [[worth(m, thing) for thing in scene.facts] for m in parsed.mentions]
    if len(table) == 1:  # the common case, which needs no search
        best = table[0].index(max(table[0]))
        return table[0][best] + _relations(parsed, (best,), scene), (best,)
    none = [worth(m, None) for m in parsed.mentions]
    if len(table) <= _EXACT:
        return _search(parsed, scene, table, none)
    # The best score for each set of objects that have been taken so far.
    states: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for row, spare in zip(table, none, strict=True):
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for taken, (score, meant) in states.items():
            options = [(taken, score + spare, -1)]
            options += [(taken | 1 << o, score + worth_, o) for o, worth_ in enumerate(row) if not taken >> o & 1]
            for key, total, o in options:
                if key not in following or total > following[key][0]:
                    following[key] = (total, (*meant, o))
        states = following
    score, meant = states.get((1 << count) - 1) or max(states.values())
    return score + _relations(parsed, meant, scene), meant


def _relations(parsed: ParsedCaption, meant: tuple[int, ...], scene: Scene) -> int:
    return sum(CLAIM if related(claim, meant, scene.objects) else -CLAIM for claim in parsed.relations)


def _search(
    parsed: ParsedCaption, scene: Scene, table: list[list[int]], none: list[int]
) -> tuple[int, tuple[int, ...]]:
    """Searches all assignments depth-first, with branch and bound."""
    spare = max(0, len(table) - len(scene.facts))
    bounds = [CLAIM * len(parsed.relations)]  # the most that the last mentions and the relations can add
    for row, other in zip(table[::-1], none[::-1], strict=True):
        bounds.append(bounds[-1] + max(*row, other))
    best, assignment = -(1 << 30), tuple[int, ...]()

    def step(score: int, meant: tuple[int, ...]) -> None:
        nonlocal best, assignment
        at = len(meant)
        if score + bounds[len(table) - at] <= best:
            return
        if at == len(table):
            score += _relations(parsed, meant, scene) if parsed.relations else 0
            if score > best:
                best, assignment = score, meant
            return
        row = table[at]
        # Tries the most promising object first, so that the bound prunes early.
        for o in sorted(range(len(row)), key=row.__getitem__, reverse=True):
            if o not in meant:
                step(score + row[o], (*meant, o))
        if meant.count(-1) < spare:
            step(score + none[at], (*meant, -1))

    step(0, ())
    return best, assignment
