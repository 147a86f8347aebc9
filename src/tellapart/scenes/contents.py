"""The content of scenes, without words and pixels: objects, relations, families of look-alikes, and ground truth.

Positions are in units of 1/128 of the picture's width (half a pixel at 64), x to the right, y downwards. A family
consists of a base scene and members that each differ from it by one edit.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from tellapart.scenes.vocabulary import COLOURS, GROUNDS, MOTIONS, SHAPES, SIZES, TEXTURES, UNSEEN_SHAPES
from tellapart.utils.random_stream import RandomStream
from tellapart.utils.versions import VERSIONS

UNITS = 128
MARGIN = 15
"""Objects closer than this along an axis count as level (jitter is smaller, the distance between columns larger)."""
NEAR = 49
"""Centres at most this far apart are near each other: neighbours in a row or a column."""
OVERLAP = 14
"""Centres at most this far apart: one object covers part of the other."""

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
"""(relation, subject, object); the last two are indices of objects in the scene."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object. ``x``, ``y`` are in units of 1/128 of the width; ``motion`` is empty in still pictures."""

    shape: str
    colour: str
    size: str
    texture: str
    x: int
    y: int
    motion: str = ""

    @property
    def place(self) -> tuple[float, float]:
        """Returns the centre as fractions of the picture's width and height, y downwards."""
        return self.x / 128, self.y / 128

    @property
    def attributes(self) -> tuple[str, str, str, str, str]:
        """Returns the values in the order of `vocabulary.FIELDS`; motion is last, and empty in still pictures."""
        return self.shape, self.colour, self.size, self.texture, self.motion


def overlaps(a: Object, b: Object) -> bool:
    """Returns whether one object is drawn over the other."""
    return (a.x - b.x) ** 2 + (a.y - b.y) ** 2 <= OVERLAP**2


def holds(relation: str, objects: Sequence[Object], i: int, j: int) -> bool:
    """Returns whether the relation holds between objects i and j. Later objects are drawn in front of earlier ones.

    Left, right, above and below consider only one axis ("left of" is also true if the object is higher up).
    Raises KeyError for an unknown relation.
    """
    a, b = objects[i], objects[j]
    if relation == "left of":
        return b.x - a.x >= MARGIN
    if relation == "right of":
        return a.x - b.x >= MARGIN
    if relation == "above":
        return b.y - a.y >= MARGIN
    if relation == "below":
        return a.y - b.y >= MARGIN
    if relation == "in front of":
        return i > j and overlaps(a, b)
    if relation == "behind":
        return i < j and overlaps(a, b)
    if relation == "near":
        return i != j and (a.x - b.x) ** 2 + (a.y - b.y) ** 2 <= NEAR**2
    raise KeyError(relation)


def between(objects: Sequence[Object], i: int, j: int, k: int) -> bool:
    """Returns whether i is between j and k, all three in one row or one column."""
    a, b, c = objects[i], objects[j], objects[k]
    for along, across in (("x", "y"), ("y", "x")):
        low, middle, high = getattr(b, along), getattr(a, along), getattr(c, along)
        if low > high:
            low, high = high, low
        crosswise = [getattr(o, across) for o in (a, b, c)]
        if max(crosswise) - min(crosswise) < MARGIN and middle - low >= MARGIN and high - middle >= MARGIN:
            return True
    return False


def natural(objects: Sequence[Object], i: int, j: int) -> str:
    """Returns the relation a person would mention first: covering, else the one along the axis on which they differ
    most.
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

    Reading order goes row by row; an object that covers another comes right after it. Within a row the
    relation is "left of", and between rows it is "above".
    """
    order = reading_order(objects)
    links: list[Relation] = []
    for i, j in itertools.pairwise(order):
        a, b = objects[i], objects[j]
        if overlaps(a, b):
            links.append(("in front of" if i > j else "behind", i, j))
        else:
            links.append(("left of" if abs(b.y - a.y) < MARGIN else "above", i, j))
    return tuple(links)


def reading_order(objects: Sequence[Object]) -> list[int]:
    """Returns object indices sorted by row and column of the three-by-three grid, back before front."""

    def cell(i: int) -> tuple[int, int, int]:
        o = objects[i]
        return (o.y * 3 // UNITS, o.x * 3 // UNITS, i)

    return sorted(range(len(objects)), key=cell)


DIAMETERS = {"small": 24, "medium": 34, "large": 46}
"""In units of 1/128 of the picture's width: 12, 17 and 23 pixels of 64."""
GRAINS = 8
"""Number of variants of each background pattern."""
_CENTRES = (25, 64, 103)
_JITTER = 3
_CELLS = tuple(itertools.product(range(3), range(3)))
_COUNTS = ((2, 3, 4), (0.35, 0.4, 0.25))


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a scene. Later objects are drawn over earlier ones; ``grain`` selects the variant of the
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

    train, validation and test have one each. Other names get one of the remaining 46 by checksum, so two such names
    collide with probability 1/46 (even then, their random streams differ).
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
    """Places the objects in cells; if ``covered`` is set, puts the last one in front of the first."""
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
    """Returns how far to move the objects ``together`` to make the sum of values equal ``residue`` modulo 7."""
    centre = min(_CENTRES, key=lambda c: abs(c - values[0]))
    for jitter in range(-_JITTER, _JITTER + 1):
        step = centre + jitter - values[0]
        if (sum(values) + step * len(together)) % 7 == residue:
            return step
    raise AssertionError("moving one or two objects can reach every residue of 7")


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


def _with(thing: Object, changes: dict[str, Any]) -> Object:
    return replace(thing, **changes)


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
        value = _other(rng, table, getattr(objects[i], slot))
        objects[i] = _with(objects[i], {slot: value})
        return replace(content, objects=tuple(objects))

    return edit


def _edit_ground(rng: RandomStream, content: Content) -> Content:
    return replace(content, ground=_other(rng, _GROUNDS[False], content.ground))


def _swap(slots: tuple[str, ...]) -> Callable[[RandomStream, Content], Content]:
    def edit(rng: RandomStream, content: Content) -> Content:
        objects = list(content.objects)
        i, j = rng.sample(range(len(objects)), 2)
        a, b = objects[i], objects[j]
        objects[i] = _with(a, {s: getattr(b, s) for s in slots})
        objects[j] = _with(b, {s: getattr(a, s) for s in slots})
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
    """Returns whether every object is visible, and no two share shape and colour."""
    objects = content.objects
    if len({(o.shape, o.colour) for o in objects}) < len(objects):
        return False
    for i, j in itertools.combinations(range(len(objects)), 2):
        a, b = objects[i], objects[j]
        if overlaps(a, b) and (a.colour == b.colour or (a.size, b.size) != ("large", "small")):
            return False
    # An object that covers another or is covered must not move, because that could hide one of the two.
    before = [(i, j) for i, j in itertools.combinations(range(len(objects)), 2) if overlaps(*_two(origin, i, j))]
    after = [(i, j) for i, j in itertools.combinations(range(len(objects)), 2) if overlaps(*_two(content, i, j))]
    return before == after


def _two(content: Content, i: int, j: int) -> tuple[Object, Object]:
    return content.objects[i], content.objects[j]


def members(origin: Content, rng: RandomStream, count: int, domain: str, moving: bool) -> tuple[Content, ...]:
    """Returns the base and ``count - 1`` scenes one edit away from it, all with distinct full descriptions."""
    edits, weights = _edits(domain == "unseen"), _MOVING if moving else _STILL
    family = [origin]
    while len(family) < count:
        candidate = edits[rng.weighted_choice(_KINDS, weights)](rng, origin)
        if _sound(origin, candidate) and not any(fits(candidate, m) or fits(m, candidate) for m in family):
            family.append(candidate)
    return tuple(family)


@dataclass(frozen=True)
class SceneTruth:
    """The complete ground truth of a picture, or of a clip if ``length`` > 1.

    ``family`` is the index of the family of look-alikes, ``member`` the index within it (0 is the base).
    """

    id: str
    objects: tuple[Object, ...]
    ground: str
    grain: int
    domain: str = "plain"
    split: str = "train"
    family: int = 0
    member: int = 0
    detail: float = 0.3
    size: int = 64
    length: int = 1
    count: int = 5
    """Number of references."""
    full: bool = False
    """Whether the references are full descriptions."""

    @property
    def name(self) -> str:
        return self.id

    @property
    def motion(self) -> tuple[str, ...]:
        """Returns each object's motion in a clip; empty for a picture."""
        return tuple(o.motion for o in self.objects) if self.length > 1 else ()

    @property
    def look_alikes(self) -> str:
        """Returns an identifier of the scene's family."""
        return f"{self.id.rpartition('-')[0]}-{self.family}"

    def content_key(self) -> str:
        """Returns a hash of the visible content (not of the id or the references)."""
        shown = [f"{self.ground}/{self.grain}/{self.size}/{self.length}"]
        shown += ["/".join(map(str, (*o.attributes, o.x, o.y))) for o in self.objects]
        return hashlib.blake2b("|".join(shown).encode(), digest_size=16).hexdigest()

    def key(self) -> str:
        """Returns the `content_key` and the renderer's version, as the cache key of the picture's features."""
        return f"{self.content_key()}-{VERSIONS['scenes']}"

    @cached_property
    def chain(self) -> tuple[Relation, ...]:
        """Returns the n-1 relations in the full description; see `chain`."""
        return chain(self.objects)

    @cached_property
    def facts(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Returns the shape, colour, size, texture and motion of every object, for comparison with captions."""
        return tuple(o.attributes for o in self.objects)

    @cached_property
    def true_relation_tuples(self) -> frozenset[tuple[str, ...]]:
        """Returns every true relation between shape names, in the canonical form of the scene graph."""
        names = [f[0] for f in self.facts]
        numbers = range(len(names))
        pairs = [(i, j) for i in numbers for j in numbers if i != j]
        found: set[tuple[str, ...]] = set()
        for kind in ("left of", "above", "in front of"):
            found |= {(kind, names[i], names[j]) for i, j in pairs if holds(kind, self.objects, i, j)}
        found |= {
            ("near", *sorted((names[i], names[j]))) for i, j in pairs if i < j and holds("near", self.objects, i, j)
        }
        for i, j in pairs:
            found |= {
                ("between", names[k], *sorted((names[i], names[j])))
                for k in numbers
                if k not in (i, j) and between(self.objects, k, i, j)
            }
        return frozenset(found)

    def relations(self) -> tuple[tuple[str, int, int] | tuple[str, int, int, int], ...]:
        """Returns the natural relation of every ordered pair, then ("between", i, j, k) for every i between j and k."""
        numbers = range(len(self.objects))
        found: list[tuple[str, int, int] | tuple[str, int, int, int]] = []
        for i in numbers:
            for j in numbers[i + 1 :]:
                kind = natural(self.objects, i, j)
                found += [(kind, i, j), (INVERSE[kind], j, i)]
        for i in numbers:
            for j in numbers:
                found += [
                    ("between", i, j, k) for k in numbers[j + 1 :] if i not in (j, k) and between(self.objects, i, j, k)
                ]
        return tuple(found)
