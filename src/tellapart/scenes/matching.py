"""Which object each mention means: the assignment under which most claims of the caption are true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .parser import Mention, ParsedCaption
from .relations import between, holds

if TYPE_CHECKING:
    from .families import Object
    from .world import Scene

CLAIM = 64
"""Score of a true claim (minus this for a false one); shapes break ties with one point more."""
_EXACT = 6
_FIELDS = {"colour": 1, "size": 2, "texture": 3, "motion": 4}


def worth(mention: Mention, thing: tuple[str, ...] | None) -> int:
    """Score of the true claims minus the false ones if the mention means ``thing`` (None: no object at all).

    Two values for one slot contradict each other: both are false for any object.
    """
    score = 0
    if mention.shape:
        score = CLAIM + 1 if thing is not None and thing[0] == mention.shape else -CLAIM
    for slot, values in mention.values.items():
        true = thing is not None and len(values) == 1 and thing[_FIELDS[slot]] == values[0]
        score += CLAIM if true else -CLAIM * len(values)
    return score


def related(claim: Sequence[str | int], meant: Sequence[int], objects: Sequence[Object]) -> bool:
    """Whether a relation claimed between mentions is true of the objects that they mean."""
    who = [meant[int(m)] for m in claim[1:]]
    if -1 in who or len(set(who)) < len(who):
        return False
    if claim[0] == "between":
        return between(objects, *who)
    return holds(str(claim[0]), objects, *who)


def align(parsed: ParsedCaption, scene: Scene) -> tuple[int, tuple[int, ...]]:
    """The best score and, for each mention, the number of the object it means (-1: none is left for it).

    Different mentions mean different objects. Exact over attributes and relations for up to six mentions;
    beyond, attributes decide and the relations are then scored on that assignment.
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
    # Best score for each set of objects already taken.
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
    """Depth first over assignments, leaving a branch that cannot beat the best any more."""

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
        # The most promising object first, so that the bound bites early.
        for o in sorted(range(len(row)), key=row.__getitem__, reverse=True):
            if not taken >> o & 1:
                self.step(at + 1, taken | 1 << o, score + row[o], (*meant, o))
        if meant.count(-1) < self.spare:
            self.step(at + 1, taken, score + self.none[at], (*meant, -1))
