"""Renders scenes: first the background, then the objects in order, each with a soft shadow.

Outlines are point tests, and weights are integer counts on a grid that is finer than the pixels. The renderer uses no
drawing library and no sine function, so that every machine renders the same pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tellapart.scenes.ground_truth import SceneTruth
from tellapart.scenes.grounds import ground
from tellapart.scenes.objects import UNITS, Object

DIAMETERS = {"small": 24, "medium": 34, "large": 46}
"""In units of 1/128 of the picture's width. At 64 pixels, these are 12, 17 and 23 pixels."""
Inside = Callable[[np.ndarray, np.ndarray], np.ndarray]


def polygon(*coordinates: float) -> Inside:
    """Returns a point test for a polygon (x, y, x, y, …, as in SVG), using the even-odd rule."""
    points = list(zip(coordinates[::2], coordinates[1::2], strict=True))

    def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        odd = np.zeros(np.broadcast(x, y).shape, dtype=bool)
        for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
            if ay != by:
                odd ^= ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
        return odd

    return inside


def ellipse(cx: float, cy: float, rx: float, ry: float | None = None) -> Inside:
    ry = rx if ry is None else ry
    return lambda x, y: ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 <= 1


def box(left: float, top: float, right: float, bottom: float) -> Inside:
    return lambda x, y: (x >= left) & (x <= right) & (y >= top) & (y <= bottom)


def union(*parts: Inside) -> Inside:
    return lambda x, y: np.logical_or.reduce([part(x, y) for part in parts])


def common(*parts: Inside) -> Inside:
    return lambda x, y: np.logical_and.reduce([part(x, y) for part in parts])


def without(whole: Inside, *holes: Inside) -> Inside:
    return lambda x, y: whole(x, y) & ~union(*holes)(x, y)


def wheel(*radii: float, turns: int, start: float = -90.0) -> list[float]:
    """Returns x, y, x, y, … of points around the centre with repeating radii. Coordinates are rounded, because math
    libraries may differ in the last bit.
    """
    count = turns * len(radii)
    angles = [math.radians(start + 360 * k / count) for k in range(count)]
    return [round(radii[k % len(radii)] * turn(a), 5) for k, a in enumerate(angles) for turn in (math.cos, math.sin)]


_PETALS = wheel(1.0, turns=5)


OUTLINES: dict[str, Inside] = {
    "circle": ellipse(0, 0, 0.94),
    "square": box(-0.84, -0.84, 0.84, 0.84),
    "star": polygon(*wheel(1.06, 0.46, turns=5)),
    "heart": union(
        ellipse(-0.45, -0.36, 0.5),
        ellipse(0.45, -0.36, 0.5),
        polygon(-0.91, -0.18, -0.4, -0.5, 0.4, -0.5, 0.91, -0.18, 0, 0.95),
    ),
    "triangle": polygon(0, -0.95, 1.0, 0.82, -1.0, 0.82),
    "house": union(
        polygon(0, -0.98, 1.0, -0.12, -1.0, -0.12),
        without(box(-0.72, -0.14, 0.72, 0.9), box(-0.2, 0.3, 0.2, 0.9)),
    ),
    "tree": union(
        polygon(0, -1, 0.55, -0.35, -0.55, -0.35),
        polygon(0, -0.62, 0.75, 0.12, -0.75, 0.12),
        polygon(0, -0.25, 0.92, 0.6, -0.92, 0.6),
        box(-0.18, 0.55, 0.18, 0.98),
    ),
    "flower": without(
        union(*(ellipse(0.58 * x, 0.58 * y, 0.42) for x, y in zip(_PETALS[::2], _PETALS[1::2], strict=True))),
        ellipse(0, 0, 0.2),
    ),
    "diamond": polygon(0, -1, 0.74, 0, 0, 1, -0.74, 0),
    "ring": without(ellipse(0, 0, 0.97), ellipse(0, 0, 0.4)),
    "moon": without(ellipse(-0.05, 0, 0.98), ellipse(0.42, -0.12, 0.78)),
    "cross": union(box(-0.34, -0.94, 0.34, 0.94), box(-0.94, -0.34, 0.94, 0.34)),
    "fish": union(ellipse(-0.2, 0, 0.76, 0.56), polygon(0.3, 0, 0.98, -0.6, 0.98, 0.6)),
    "boat": union(
        polygon(-0.98, 0.38, 0.98, 0.38, 0.6, 0.9, -0.6, 0.9),
        polygon(-0.02, -0.98, -0.02, 0.24, -0.82, 0.24),
        polygon(0.14, -0.7, 0.78, 0.24, 0.14, 0.24),
        box(-0.05, -0.98, 0.05, 0.4),
    ),
    "cloud": union(
        ellipse(-0.5, 0.14, 0.46),
        ellipse(0.0, -0.22, 0.54),
        ellipse(0.54, 0.12, 0.44),
        box(-0.55, 0.1, 0.58, 0.58),
    ),
    "leaf": common(ellipse(0.5, 0.5, 1.28), ellipse(-0.5, -0.5, 1.28)),
    "arrow": union(polygon(1.0, 0, 0.1, -0.85, 0.1, 0.85), box(-0.95, -0.34, 0.15, 0.34)),
    "drop": union(ellipse(0, 0.32, 0.64), polygon(0, -1, 0.57, 0.03, -0.57, 0.03)),
    "hexagon": polygon(*wheel(1.0, turns=6, start=0.0)),
    "oval": ellipse(0, 0, 1.0, 0.6),
    "dome": common(ellipse(0, 0.5, 1.0, 1.06), box(-1, -1, 1, 0.5)),
    "mushroom": union(common(ellipse(0, 0.06, 0.96, 0.96), box(-1, -1, 1, 0.1)), box(-0.28, 0.0, 0.28, 0.94)),
    "bolt": polygon(0.0, -1, -0.84, 0.24, -0.2, 0.24, -0.5, 1, 0.84, -0.4, 0.22, -0.4, 0.66, -1),
    "bell": union(
        common(ellipse(0, -0.22, 0.56, 0.72), box(-1, -1, 1, 0.0)),
        polygon(-0.56, -0.2, 0.56, -0.2, 0.66, 0.3, 0.94, 0.62, -0.94, 0.62, -0.66, 0.3),
        ellipse(0, 0.72, 0.24),
    ),
    "crown": polygon(-0.95, -0.6, -0.45, 0.0, 0, -0.85, 0.45, 0.0, 0.95, -0.6, 0.78, 0.78, -0.78, 0.78),
    "apple": without(
        union(ellipse(-0.36, 0.2, 0.56, 0.72), ellipse(0.36, 0.2, 0.56, 0.72), ellipse(0.28, -0.78, 0.26, 0.15)),
        polygon(-0.22, -0.66, 0.22, -0.66, 0, -0.2),
    ),
    "key": union(
        without(ellipse(-0.52, 0, 0.48), ellipse(-0.52, 0, 0.18)),
        box(-0.1, -0.15, 0.98, 0.15),
        box(0.4, 0.1, 0.58, 0.46),
        box(0.76, 0.1, 0.98, 0.52),
    ),
    "umbrella": union(
        without(
            common(ellipse(0, 0.1, 1.0, 0.98), box(-1, -1, 1, 0.12)),
            ellipse(-0.66, 0.16, 0.3, 0.22),
            ellipse(0.66, 0.16, 0.3, 0.22),
        ),
        box(-0.09, 0, 0.09, 0.86),
        without(
            common(ellipse(0.2, 0.72, 0.3), box(-1, 0.72, 1, 1.1)),
            common(ellipse(0.2, 0.72, 0.12), box(-1, 0.72, 1, 1.1)),
        ),
    ),
    "rocket": union(
        common(ellipse(0.45, 0.1, 0.86, 1.25), ellipse(-0.45, 0.1, 0.86, 1.25), box(-1, -1.1, 1, 0.62)),
        polygon(-0.3, 0.1, -0.86, 0.85, -0.3, 0.62),
        polygon(0.3, 0.1, 0.86, 0.85, 0.3, 0.62),
        polygon(-0.2, 0.66, 0.2, 0.66, 0, 1.0),
    ),
    "cup": union(
        polygon(-0.85, -0.75, 0.5, -0.75, 0.4, 0.85, -0.75, 0.85),
        without(ellipse(0.5, -0.05, 0.48), ellipse(0.5, -0.05, 0.24)),
    ),
    "gear": without(union(ellipse(0, 0, 0.74), polygon(*wheel(1.05, 1.05, 0.6, 0.6, turns=8))), ellipse(0, 0, 0.3)),
    "hourglass": union(
        polygon(-0.78, -0.85, 0.78, -0.85, 0.1, 0.0, 0.78, 0.85, -0.78, 0.85, -0.1, 0.0),
        box(-0.88, -0.98, 0.88, -0.76),
        box(-0.88, 0.76, 0.88, 0.98),
    ),
}


FINE = 4
"""The number of fine rows and columns per pixel."""
_PAD = 3
"""The number of pixels around the shape, for its edge and shadow."""
_WHOLE = 256


@dataclass(frozen=True, slots=True)
class Sprite:
    """Weights from 0 to 256, height × width × 1. ``keep`` is the background's weight."""

    keep: np.ndarray
    fill: np.ndarray
    second: np.ndarray
    edge: np.ndarray


@lru_cache(maxsize=4096)
def _mask(shape: str, fine_diameter: int, side: int) -> np.ndarray:
    """Returns a shape's mask, centred on a fine grid of ``side``×``side`` cells."""
    steps = (2 * np.arange(side) + 1 - side) / fine_diameter
    return OUTLINES[shape](steps[None, :], steps[:, None])


def _eroded(mask: np.ndarray, radius: int) -> np.ndarray:
    """Erodes a mask by ``radius`` cells of the fine grid."""
    inner, height, width = mask.copy(), *mask.shape
    for dy in range(-radius, radius + 1):
        dx = int((radius * radius - dy * dy) ** 0.5)
        for step in {-dx, dx}:
            moved = np.zeros_like(mask)
            y0, y1, x0, x1 = max(dy, 0), height + min(dy, 0), max(step, 0), width + min(step, 0)
            moved[y0:y1, x0:x1] = mask[y0 - dy : y1 - dy, x0 - step : x1 - step]
            inner &= moved
    return inner


@lru_cache(maxsize=4096)
def _layers(
    shape: str, fine_diameter: int, side: int, edge: int, contour: int, thinnest: int
) -> tuple[np.ndarray, ...]:
    mask = _mask(shape, fine_diameter, side)
    core = _eroded(mask, contour)
    # A narrow shape gets a thinner contour; otherwise, its interior would close up.
    while contour > thinnest and core.sum() * 3 < mask.sum():
        contour -= 1
        core = _eroded(mask, contour)
    return mask, _eroded(mask, edge), core


# The period of each pattern relative to the shape, and its least number of pixels: small objects have fewer repeats.
_PERIODS = {"striped": (0.5, 7.6), "dotted": (0.52, 8.4), "checked": (0.66, 7.4), "ringed": (0.52, 7.0)}


@lru_cache(maxsize=4096)
def _pattern(texture: str, fine_diameter: int, side: int) -> np.ndarray:
    """Returns the second tone's mask on the fine grid."""
    if texture not in _PERIODS:
        return np.zeros((side, side), dtype=bool)
    relative, pixels = _PERIODS[texture]
    period = max(relative, pixels / (fine_diameter / FINE))
    steps = (2 * np.arange(side) + 1 - side) / fine_diameter
    x, y = steps[None, :], steps[:, None]
    if texture == "striped":
        second: np.ndarray = ((x + y) / period) % 1.0 < 0.5
    elif texture == "ringed":
        second = (np.sqrt(x * x + y * y) / period + 0.25) % 1.0 < 0.5
    elif texture == "checked":
        second = (np.floor(x / period * 2 + 0.5) + np.floor(y / period * 2 + 0.5)) % 2 == 0
    else:
        row = y / period * 1.12 + 0.5
        u = (x / period + 0.5 * (np.floor(row) % 2) + 0.5) % 1.0 - 0.5
        v = row % 1.0 - 0.5
        second = u * u + v * v < 0.115
    return second


def _counts(fine: np.ndarray) -> np.ndarray:
    """Counts the fine cells in each pixel, scaled to 0..256."""
    pixels = fine.shape[0] // FINE
    cells: np.ndarray = fine.reshape(pixels, FINE, pixels, FINE).sum(axis=(1, 3), dtype=np.int32)
    return cells * (_WHOLE // FINE**2)


def _blurred(weight: np.ndarray) -> np.ndarray:
    """Blurs by applying a three-by-three mean filter twice."""
    for _ in range(2):
        padded = np.pad(weight, 1)
        rows = padded[:-2] + padded[1:-1] + padded[2:]
        weight = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) // 9
    return weight


@lru_cache(maxsize=16384)
def sprite(shape: str, texture: str, diameter: int, scale: int, dx: int, dy: int) -> Sprite:
    """Returns a shape's sprite.

    diameter: the diameter in units of 1/128 of the picture's width.
    scale: the picture's width in pixels.
    dx, dy: the sub-pixel offset in fine steps (0..FINE-1).

    The sprite's side is even, and its centre is at the common corner of the four middle pixels.
    """
    fine_diameter = max(2, diameter * scale * FINE // 128)
    half = -(-fine_diameter * 11 // (20 * FINE)) + _PAD * max(1, scale // 64)
    side = 2 * half * FINE
    edge = max(2, fine_diameter // 22, scale * FINE // 100)
    thinnest = scale * FINE * 5 // 256
    contour = max(edge + 4, fine_diameter * 3 // 20)
    mask, inside, core = (
        np.roll(layer, (dy, dx), (0, 1)) for layer in _layers(shape, fine_diameter, side, edge, contour, thinnest)
    )
    if texture == "hollow":
        mask, second = mask & ~core, np.zeros_like(mask)
        inside = inside & mask
    else:
        second = np.roll(_pattern(texture, fine_diameter, side), (dy, dx), (0, 1)) & inside
    covered, tinted = _counts(mask), _counts(second)
    inner = _counts(inside)
    offset = max(1, scale // 56)
    shade = _blurred(np.pad(covered, ((offset, 0), (offset // 2, 0)))[: covered.shape[0], : covered.shape[1]])
    keep = (_WHOLE - covered) * (_WHOLE - shade * 2 // 5) // _WHOLE
    return Sprite(keep[..., None], (inner - tinted)[..., None], tinted[..., None], (covered - inner)[..., None])


_RGB = {
    "red": (214, 40, 40),
    "blue": (38, 84, 210),
    "green": (34, 140, 60),
    "yellow": (250, 210, 30),
    "orange": (245, 128, 20),
    "purple": (128, 52, 168),
    "black": (32, 32, 36),
    "white": (252, 252, 252),
    "pink": (248, 120, 182),
    "brown": (118, 68, 30),
    "gray": (134, 138, 146),
    "turquoise": (28, 190, 190),
}
_PALE = ("yellow", "white", "pink", "turquoise", "orange")
# How each motion changes an object's x, its y and its size.
_MOTIONS = {
    "left": (-1, 0, 0),
    "right": (1, 0, 0),
    "up": (0, -1, 0),
    "down": (0, 1, 0),
    "grow": (0, 0, 1),
    "shrink": (0, 0, -1),
}
_REACH = 24
"""How far an object moves in a clip to either side of its position, in units of 1/128."""


@lru_cache
def _tones(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the fill, the second tone and the edge. Pale colours get a darker second tone; other colours get a
    lighter one.
    """
    fill = np.array(_RGB[name], dtype=np.int32)
    second = fill * 9 // 16 if name in _PALE else fill + (255 - fill) * 13 // 16
    return fill, second, fill // 2 if name == "black" else fill * 5 // 9


def draw_scene(scene: SceneTruth, size: int, frame: int | None = None) -> np.ndarray:
    """Renders a scene to uint8, size × size × 3. ``frame`` is the index of a clip's frame [default: the middle
    frame].
    """
    canvas = ground(scene.ground, scene.grain, size).copy()
    # The middle frame shows every object at its position, so that the picture's ground truth applies.
    progress = 0 if frame is None else frame - scene.length // 2
    for thing in scene.objects:
        _paste(canvas, thing, *_moved(thing, progress, scene.length))
    return canvas.astype(np.uint8)


def _moved(thing: Object, progress: int, length: int) -> tuple[int, int, int]:
    """Returns the position and diameter, in integer units, of an object ``progress`` frames after the middle frame."""
    half, diameter = max(1, length // 2), DIAMETERS[thing.size]
    across, down, growth = _MOTIONS.get(thing.motion, (0, 0, 0))
    step = _REACH * progress // half
    # The object hops twice, and is at its position in the middle frame.
    swing = abs(progress) * 4 % (2 * half) if thing.motion == "jump" else 0
    hop = 14 * min(swing, 2 * half - swing) // half
    return (
        thing.x + across * step,
        thing.y + down * step - hop,
        diameter + growth * (diameter * 9 * progress // (20 * half)),
    )


def _paste(canvas: np.ndarray, thing: Object, x: int, y: int, diameter: int) -> None:
    size = canvas.shape[0]
    fine_x, fine_y = x * size * FINE // UNITS, y * size * FINE // UNITS
    cut = sprite(thing.shape, thing.texture, diameter, size, fine_x % FINE, fine_y % FINE)
    half = cut.keep.shape[0] // 2
    left, top = fine_x // FINE - half, fine_y // FINE - half
    x0, y0, x1, y1 = max(0, left), max(0, top), min(size, left + 2 * half), min(size, top + 2 * half)
    if x0 >= x1 or y0 >= y1:
        return
    part = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    fill, second, edge = _tones(thing.colour)
    if thing.texture == "hollow":
        # The line is too thin for a dark edge. Only a white line needs one, so that it is visible on snow and paper.
        edge = fill * 3 // 8 if thing.colour == "white" else fill
    region = canvas[y0:y1, x0:x1]
    mixed = region * cut.keep[part] + fill * cut.fill[part] + edge * cut.edge[part]
    if thing.texture not in ("plain", "hollow"):
        mixed += second * cut.second[part]
    np.right_shift(mixed, 8, out=region)
