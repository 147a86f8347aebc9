"""Generates families of look-alikes: a base scene, and members that each differ from it by one edit."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tellapart.scenes.relations import Object, chain, holds, overlaps
from tellapart.scenes.vocabulary import COLOURS, GROUNDS, MOTIONS, SHAPES, SIZES, TEXTURES, UNSEEN_SHAPES
from tellapart.utils.random_stream import RandomStream

GRAINS = 8
"""Number of variants of each background pattern."""
_CENTRES = (25, 64, 103)
_JITTER = 3
_CELLS = tuple(itertools.product(range(3), range(3)))
_COUNTS = ((2, 3, 4), (0.35, 0.4, 0.25))


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a scene. Later objects are drawn over earlier objects. ``grain`` selects the variant of the
    background's pattern.
    """

    objects: tuple[Object, ...]
    ground: str
    grain: int


def _tail(options: dict[str, tuple[str, ...]], power: float) -> tuple[tuple[str, ...], tuple[float, ...]]:
    names = tuple(options)
    return names, tuple(round((rank + 1) ** -power, 6) for rank in range(len(names)))


_SHAPES = {False: _tail(SHAPES, 0.4), True: _tail(UNSEEN_SHAPES, 0.2)}
_COLOURS = _tail(COLOURS, 0.5)
_GROUNDS = {False: _tail(GROUNDS, 0.3), True: (("paper", *(g for g in GROUNDS if g != "paper")), (6.0, *[1.0] * 12))}
_TEXTURES = (tuple(TEXTURES), (0.3, 0.14, 0.14, 0.14, 0.14, 0.14))
_SIZES = (tuple(SIZES), (0.3, 0.4, 0.3))
_MOTIONS = (tuple(MOTIONS), (0.24, 0.12, 0.12, 0.12, 0.12, 0.1, 0.09, 0.09))


def split_class(split: str) -> int:
    """Returns the residue modulo 49 reserved for a split's object positions, so that no scene is in two splits.

    The splits train, validation and test have one residue each. Any other name gets one of the remaining 46 residues by
    checksum, so two such names collide with probability 1/46 (but their random streams still differ).
    """
    reserved = ("train", "validation", "test")
    return reserved.index(split) if split in reserved else 3 + zlib.crc32(split.encode()) % 46


def _draw_objects(rng: RandomStream, count: int, unseen: bool, moving: bool) -> list[Object]:
    objects: list[Object] = []
    while len(objects) < count:
        shape = rng.weighted_choice(*_SHAPES[unseen])
        if any(o.shape == shape for o in objects) and not rng.bernoulli(0.3):
            continue
        colour = rng.weighted_choice(*_COLOURS)
        if any((o.shape, o.colour) == (shape, colour) for o in objects):
            continue
        size, texture = rng.weighted_choice(*_SIZES), rng.weighted_choice(*_TEXTURES)
        motion = rng.weighted_choice(*_MOTIONS) if moving else ""
        objects.append(Object(shape, colour, size, texture, 0, 0, motion))
    return objects


def _roomy(objects: list[Object], cells: list[tuple[int, int]]) -> bool:
    large = [cell for o, cell in zip(objects, cells, strict=True) if o.size == "large"]
    return all(max(abs(a[0] - b[0]), abs(a[1] - b[1])) > 1 for a, b in itertools.combinations(large, 2))


def _place(rng: RandomStream, objects: list[Object], covered: bool) -> list[Object]:
    """Places the objects in cells. If ``covered`` is set, puts the last object in front of the first object."""
    free = objects[:-1] if covered else objects
    for _ in range(6):
        cells = rng.sample(_CELLS, len(free))
        if _roomy(free, cells):
            break
    placed = []
    for o, (column, row) in zip(free, cells, strict=True):
        x, y = (_CENTRES[c] + rng.randrange(2 * _JITTER + 1) - _JITTER for c in (column, row))
        placed.append(replace(o, x=x, y=y))
    if covered:
        dx, dy = (rng.choice((-6, -5, 5, 6)) for _ in range(2))
        placed.append(replace(objects[-1], x=placed[0].x + dx, y=placed[0].y + dy))
    return placed


def _shift(values: list[int], together: list[int], residue: int) -> int:
    """Returns how far to move the objects ``together`` so that the sum of the values is congruent to ``residue`` modulo
    7.
    """
    centre = min(_CENTRES, key=lambda c: abs(c - values[0]))
    for jitter in range(-_JITTER, _JITTER + 1):
        step = centre + jitter - values[0]
        if (sum(values) + step * len(together)) % 7 == residue:
            return step
    raise AssertionError("moving one or two objects can reach every residue modulo 7")


def base(rng: RandomStream, split: str, domain: str, moving: bool) -> Content:
    """Generates the base scene of a family."""
    count = rng.weighted_choice(*_COUNTS)
    objects = _draw_objects(rng, count, domain == "unseen", moving)
    covered = rng.bernoulli(0.25) and objects[0].colour != objects[-1].colour
    if covered:
        objects[0], objects[-1] = replace(objects[0], size="large"), replace(objects[-1], size="small")
    objects = _place(rng, objects, covered)
    together = [0, len(objects) - 1] if covered else [0]
    wanted = split_class(split)
    dx = _shift([o.x for o in objects], together, wanted % 7)
    dy = _shift([o.y for o in objects], together, wanted // 7)
    for i in together:
        objects[i] = replace(objects[i], x=objects[i].x + dx, y=objects[i].y + dy)
    return Content(tuple(objects), rng.weighted_choice(*_GROUNDS[domain == "alt"]), rng.randrange(GRAINS))


def _other(rng: RandomStream, table: tuple[tuple[str, ...], tuple[float, ...]], now: str) -> str:
    while (value := rng.weighted_choice(*table)) == now:
        pass
    return value


def _edit_slot(
    slot: str, table: tuple[tuple[str, ...], tuple[float, ...]]
) -> Callable[[RandomStream, Content], Content]:
    def edit(rng: RandomStream, content: Content) -> Content:
        objects = list(content.objects)
        i = rng.randrange(len(objects))
        value: Any = _other(rng, table, getattr(objects[i], slot))
        objects[i] = replace(objects[i], **{slot: value})
        return replace(content, objects=tuple(objects))

    return edit


def _edit_ground(rng: RandomStream, content: Content) -> Content:
    return replace(content, ground=_other(rng, _GROUNDS[False], content.ground))


def _swap(slots: tuple[str, ...]) -> Callable[[RandomStream, Content], Content]:
    def edit(rng: RandomStream, content: Content) -> Content:
        objects = list(content.objects)
        i, j = rng.sample(range(len(objects)), 2)
        a, b = objects[i], objects[j]
        objects[i] = replace(a, **{s: getattr(b, s) for s in slots})
        objects[j] = replace(b, **{s: getattr(a, s) for s in slots})
        return replace(content, objects=tuple(objects))

    return edit


_KINDS = ("colour", "texture", "size", "shape", "ground", "places", "colours", "textures", "sizes", "motion")
_STILL = (0.26, 0.17, 0.12, 0.09, 0.08, 0.13, 0.08, 0.04, 0.03, 0.0)
_MOVING = (0.2, 0.13, 0.1, 0.07, 0.06, 0.1, 0.07, 0.03, 0.02, 0.22)


@lru_cache(maxsize=2)
def _edits(unseen: bool) -> dict[str, Callable[[RandomStream, Content], Content]]:
    return {
        "colour": _edit_slot("colour", _COLOURS),
        "texture": _edit_slot("texture", _TEXTURES),
        "size": _edit_slot("size", _SIZES),
        "shape": _edit_slot("shape", _SHAPES[unseen]),
        "motion": _edit_slot("motion", _MOTIONS),
        "ground": _edit_ground,
        "places": _swap(("x", "y")),
        "colours": _swap(("colour",)),
        "textures": _swap(("texture",)),
        "sizes": _swap(("size",)),
    }


def fits(a: Content, b: Content) -> bool:
    """Returns whether the full description of ``a`` is also true of ``b``."""
    if a.ground != b.ground or sorted(o.attributes for o in a.objects) != sorted(o.attributes for o in b.objects):
        return False
    links = chain(a.objects)
    for order in itertools.permutations(range(len(b.objects))):
        same = all(o.attributes == b.objects[p].attributes for o, p in zip(a.objects, order, strict=True))
        if same and all(holds(kind, b.objects, order[i], order[j]) for kind, i, j in links):
            return True
    return False


def _sound(origin: Content, content: Content) -> bool:
    """Returns whether every object is visible, and no two objects have the same shape and colour."""
    objects = content.objects
    if len({(o.shape, o.colour) for o in objects}) < len(objects):
        return False
    for i, j in itertools.combinations(range(len(objects)), 2):
        a, b = objects[i], objects[j]
        if overlaps(a, b) and (a.colour == b.colour or (a.size, b.size) != ("large", "small")):
            return False
    # An object that covers another object or is covered must not move, because that could hide one of the two.
    before, after = (
        [overlaps(*pair) for pair in itertools.combinations(each.objects, 2)] for each in (origin, content)
    )
    return before == after


def members(origin: Content, rng: RandomStream, count: int, domain: str, moving: bool) -> tuple[Content, ...]:
    """Returns the base and ``count - 1`` scenes that are one edit away from it. All have distinct full descriptions."""
    edits, weights = _edits(domain == "unseen"), _MOVING if moving else _STILL
    family = [origin]
    while len(family) < count:
        candidate = edits[rng.weighted_choice(_KINDS, weights)](rng, origin)
        if _sound(origin, candidate) and not any(fits(candidate, m) or fits(m, candidate) for m in family):
            family.append(candidate)
    return tuple(family)
