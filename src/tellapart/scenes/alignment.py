"""Aligns the mentions in a caption with the objects of its scene, so that most claims are true."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.scenes.parser import Mention, ParsedCaption
from tellapart.scenes.relations import Object, between, holds
from tellapart.scenes.vocabulary import FIELDS
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
    facts = scene.facts
    count, objects = len(facts), range(len(facts))
    table = [[worth(m, facts[o]) for o in objects] for m in parsed.mentions]
    if not table:
        return 0, ()
    if len(table) == 1:
        best = max(objects, key=table[0].__getitem__)
        return table[0][best] + _relations(parsed, (best,), scene), (best,)
    none = [worth(m, None) for m in parsed.mentions]
    if len(table) <= _EXACT:
        return _Search(parsed, scene, table, none).run()
    # The best score for each set of objects that have been taken so far.
    states: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for row, spare in zip(table, none, strict=True):
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for taken, (score, meant) in states.items():
            options = [(taken, score + spare, -1)]
            options += [(taken | 1 << o, score + row[o], o) for o in objects if not taken >> o & 1]
            for key, total, o in options:
                if key not in following or total > following[key][0]:
                    following[key] = (total, (*meant, o))
        states = following
    score, meant = states.get((1 << count) - 1) or max(states.values())
    return score + _relations(parsed, meant, scene), meant


def _relations(parsed: ParsedCaption, meant: tuple[int, ...], scene: Scene) -> int:
    return sum(CLAIM if related(claim, meant, scene.objects) else -CLAIM for claim in parsed.relations)


class _Search:
    """Depth-first branch and bound over assignments."""

    def __init__(self, parsed: ParsedCaption, scene: Scene, table: list[list[int]], none: list[int]) -> None:
        self.parsed, self.scene, self.table, self.none = parsed, scene, table, none
        self.spare = max(0, len(table) - len(table[0]))
        self.bound = [CLAIM * len(parsed.relations)] * (len(table) + 1)
        for at in range(len(table) - 1, -1, -1):
            self.bound[at] = self.bound[at + 1] + max(*table[at], none[at])
        self.best, self.meant = -(1 << 30), (-1,) * len(table)

    def run(self) -> tuple[int, tuple[int, ...]]:
        self.step(0, 0, 0, ())
        return self.best, self.meant

    def step(self, at: int, taken: int, score: int, meant: tuple[int, ...]) -> None:
        if score + self.bound[at] <= self.best:
            return
        if at == len(self.table):
            score += _relations(self.parsed, meant, self.scene) if self.parsed.relations else 0
            if score > self.best:
                self.best, self.meant = score, meant
            return
        row = self.table[at]
        # Tries the most promising object first, so that the bound prunes early.
        for o in sorted(range(len(row)), key=row.__getitem__, reverse=True):
            if not taken >> o & 1:
                self.step(at + 1, taken | 1 << o, score + row[o], (*meant, o))
        if meant.count(-1) < self.spare:
            self.step(at + 1, taken, score + self.none[at], (*meant, -1))
