"""Generates families of look-alikes: a base scene, and members that each differ from it by one edit."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace
from typing import Any, NamedTuple

from tellapart.scenes.objects import Object
from tellapart.scenes.relations import chain, holds, overlaps
from tellapart.scenes.vocabulary import COLOURS, GROUNDS, MOTIONS, SHAPES, SIZES, TEXTURES, UNSEEN_SHAPES
from tellapart.utils.random_stream import RandomStream

GRAINS = 8
"""Number of variants of each background pattern."""
_CENTRES = (25, 64, 103)
_JITTER = 3
_CELLS = tuple(itertools.product(range(3), range(3)))
_COUNTS = ((2, 3, 4), (0.35, 0.4, 0.25))


class Content(NamedTuple):
    """The content of a scene. Later objects are drawn over earlier objects. ``grain`` selects the variant of the
    background's pattern.
    """

    objects: tuple[Object, ...]
    ground: str
    grain: int


Odds = tuple[tuple[str, ...], tuple[float, ...]]  # values and their weights


def _tail(options: dict[str, tuple[str, ...]], power: float) -> Odds:
    return tuple(options), tuple(round((rank + 1) ** -power, 6) for rank in range(len(options)))


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


def _other(rng: RandomStream, odds: Odds, now: str) -> str:
    while (value := rng.weighted_choice(*odds)) == now:
        pass
    return value


_KINDS = ("colour", "texture", "size", "shape", "ground", "places", "colours", "textures", "sizes", "motion")
_STILL = (0.26, 0.17, 0.12, 0.09, 0.08, 0.13, 0.08, 0.04, 0.03, 0.0)
_MOVING = (0.2, 0.13, 0.1, 0.07, 0.06, 0.1, 0.07, 0.03, 0.02, 0.22)
# The fields that an edit swaps between two objects.
_SWAPS = {"places": ("x", "y"), "colours": ("colour",), "textures": ("texture",), "sizes": ("size",)}


def _edited(content: Content, kind: str, rng: RandomStream, unseen: bool) -> Content:
    """Returns a scene that differs by one edit: another background or attribute, or fields that two objects swap."""
    if kind == "ground":
        return content._replace(ground=_other(rng, _GROUNDS[False], content.ground))
    objects = list(content.objects)
    if fields := _SWAPS.get(kind):
        i, j = rng.sample(range(len(objects)), 2)
        for one, other in ((i, j), (j, i)):
            swapped: dict[str, Any] = {name: getattr(content.objects[other], name) for name in fields}
            objects[one] = replace(objects[one], **swapped)
    else:
        odds = {"colour": _COLOURS, "texture": _TEXTURES, "size": _SIZES, "shape": _SHAPES[unseen], "motion": _MOTIONS}
        i = rng.randrange(len(objects))
        other_value: Any = _other(rng, odds[kind], getattr(objects[i], kind))
        objects[i] = replace(objects[i], **{kind: other_value})
    return content._replace(objects=tuple(objects))


def fits(a: Content, b: Content) -> bool:
    """Returns whether the full description of ``a`` is also true of ``b``."""
    if a.ground != b.ground or sorted(o.attributes for o in a.objects) != sorted(o.attributes for o in b.objects):
        return False
    links, count = chain(a.objects), range(len(b.objects))
    return any(
        all(a.objects[i].attributes == b.objects[order[i]].attributes for i in count)
        and all(holds(kind, b.objects, order[i], order[j]) for kind, i, j in links)
        for order in itertools.permutations(count)
    )


def _sound(origin: Content, content: Content) -> bool:
    """Returns whether every object is visible, and no two objects have the same shape and colour."""
    if len({(o.shape, o.colour) for o in content.objects}) < len(content.objects):
        return False
    # An object that covers another object or is covered must not move, because that could hide one of the two.
    pairs, before = (list(itertools.combinations(each.objects, 2)) for each in (content, origin))
    if [overlaps(*pair) for pair in pairs] != [overlaps(*pair) for pair in before]:
        return False
    covering = [(a, b) for a, b in pairs if overlaps(a, b)]
    return all(a.colour != b.colour and (a.size, b.size) == ("large", "small") for a, b in covering)


def members(origin: Content, rng: RandomStream, count: int, domain: str, moving: bool) -> tuple[Content, ...]:
    """Returns the base and ``count - 1`` scenes that are one edit away from it. All have distinct full descriptions."""
    weights = _MOVING if moving else _STILL
    family = [origin]
    while len(family) < count:
        candidate = _edited(origin, rng.weighted_choice(_KINDS, weights), rng, domain == "unseen")
        if _sound(origin, candidate) and not any(fits(candidate, m) or fits(m, candidate) for m in family):
            family.append(candidate)
    return tuple(family)
