"""Scenes to pixels: a ground, and on it the objects in order, each with a soft shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .families import DIAMETERS, Object
from .grounds import ground
from .relations import UNITS
from .sprites import FINE, sprite

if TYPE_CHECKING:
    from .scene_truth import SceneTruth

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
_REACH = 24
"""How far an object travels in a clip from its place, to either side, in units of 1/128."""


def _tones(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fill, second tone of a texture, edge: pale colours get a darker second tone, others a lighter one."""
    fill = np.array(_RGB[name], dtype=np.int32)
    edge = fill * 5 // 9
    if name == "black":
        edge = fill // 2
    second = fill * 9 // 16 if name in _PALE else fill + (255 - fill) * 13 // 16
    return fill, second, edge


_TONES = {name: _tones(name) for name in _RGB}


def draw(scene: SceneTruth, size: int, frame: int | None = None) -> np.ndarray:
    """Pixels of a scene, uint8 size × size × 3; ``frame`` of a clip, its middle where None."""
    canvas = ground(scene.ground, scene.grain, size).copy()
    # The middle frame shows every object at its place, so that the truth of places is the picture's.
    progress = 0 if frame is None else frame - scene.length // 2
    for thing in scene.objects:
        x, y, diameter = _moved(thing, progress, scene.length)
        _paste(canvas, thing, x, y, diameter)
    return canvas.astype(np.uint8)


def _moved(thing: Object, progress: int, length: int) -> tuple[int, int, int]:
    """Place and diameter of an object ``progress`` frames from the middle, in whole units."""
    x, y, diameter = thing.x, thing.y, DIAMETERS[thing.size]
    half = max(1, length // 2)
    step = _REACH * progress // half
    if thing.motion == "left":
        x -= step
    elif thing.motion == "right":
        x += step
    elif thing.motion == "up":
        y -= step
    elif thing.motion == "down":
        y += step
    elif thing.motion == "jump":
        # Two hops, on the ground at the middle frame.
        swing = abs(progress) * 4 % (2 * half)
        y -= 14 * min(swing, 2 * half - swing) // half
    elif thing.motion == "grow":
        diameter += diameter * 9 * progress // (20 * half)
    elif thing.motion == "shrink":
        diameter -= diameter * 9 * progress // (20 * half)
    return x, y, diameter


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
    fill, second, edge = _TONES[thing.colour]
    if thing.texture == "hollow":
        # So thin a line has no room for a dark edge beside its own colour; only white needs one, on snow and paper.
        edge = fill * 3 // 8 if thing.colour == "white" else fill
    region = canvas[y0:y1, x0:x1]
    mixed = region * cut.keep[part] + fill * cut.fill[part] + edge * cut.edge[part]
    if thing.texture not in ("plain", "hollow"):
        mixed += second * cut.second[part]
    np.right_shift(mixed, 8, out=region)
