"""Relations between objects. Distances are in the units of `objects`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tellapart.scenes.objects import UNITS, Object

MARGIN = 15
"""Objects that are closer than this along an axis count as level. Jitter is smaller, and the distance between columns
is larger.
"""
NEAR = 49
"""Objects whose centres are at most this far apart are near each other. They are neighbours in a row or a column."""
OVERLAP = 14
"""If the centres of two objects are at most this far apart, one object covers part of the other."""

INVERSE = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
    "in front of": "behind",
    "behind": "in front of",
    "near": "near",
}
Relation = tuple[str, int, int]
"""(relation, subject, object), where subject and object are indices of objects in the scene."""


def overlaps(a: Object, b: Object) -> bool:
    """Returns whether one object is drawn partly over the other."""
    return (a.x - b.x) ** 2 + (a.y - b.y) ** 2 <= OVERLAP**2


# The axes along which a relation's second object has a larger coordinate than its first object.
_DIRECTIONS = {"left of": (1, 0), "right of": (-1, 0), "above": (0, 1), "below": (0, -1)}


def holds(relation: str, objects: Sequence[Object], i: int, j: int) -> bool:
    """Returns whether the relation holds between objects i and j. Later objects are drawn in front of earlier ones.

    Left, right, above and below consider only one axis, so "left of" is also true of an object that is higher up.
    Raises KeyError for an unknown relation.
    """
    a, b = objects[i], objects[j]
    if relation in ("in front of", "behind"):
        return i != j and (i > j) == (relation == "in front of") and overlaps(a, b)
    if relation == "near":
        return i != j and (a.x - b.x) ** 2 + (a.y - b.y) ** 2 <= NEAR**2
    across, down = _DIRECTIONS[relation]
    return across * (b.x - a.x) + down * (b.y - a.y) >= MARGIN


def between(objects: Sequence[Object], i: int, j: int, k: int) -> bool:
    """Returns whether i is between j and k and all three objects are in one row or one column."""
    xs, ys = zip(*((objects[n].x, objects[n].y) for n in (j, i, k)), strict=True)
    for along, across in ((xs, ys), (ys, xs)):
        steps = along[1] - along[0], along[2] - along[1]
        in_line = max(across) - min(across) < MARGIN
        if in_line and (min(steps) >= MARGIN or max(steps) <= -MARGIN):
            return True
    return False


def natural(objects: Sequence[Object], i: int, j: int) -> str:
    """Returns the relation that a person would mention first: whether one object covers the other, or else the relation
    along the axis on which the objects are further apart.
    """
    a, b = objects[i], objects[j]
    if overlaps(a, b):
        return "in front of" if i > j else "behind"
    dx, dy = b.x - a.x, b.y - a.y
    if abs(dx) >= abs(dy):
        return "left of" if dx > 0 else "right of"
    return "above" if dy > 0 else "below"


def chain(objects: Sequence[Object]) -> tuple[Relation, ...]:
    """Returns the n-1 relations in the full description, from each object to the next in reading order.

    Reading order goes row by row, and an object that covers another object comes right after it. The relation is "left
    of" within a row, and "above" between rows.
    """
    links: list[Relation] = []
    for i, j in itertools.pairwise(reading_order(objects)):
        kind = natural(objects, i, j)
        if not overlaps(objects[i], objects[j]):
            kind = "left of" if abs(objects[j].y - objects[i].y) < MARGIN else "above"
        links.append((kind, i, j))
    return tuple(links)


def reading_order(objects: Sequence[Object]) -> list[int]:
    """Returns object indices sorted by row and column of the three-by-three grid. Objects in the back come before those
    in front.
    """
    return sorted(range(len(objects)), key=lambda i: (objects[i].y * 3 // UNITS, objects[i].x * 3 // UNITS, i))
