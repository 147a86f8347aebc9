"""Outlines of the shapes as tests on points: no drawing library, so every machine gets the same pixels.

A shape is a function of coordinate arrays x (right) and y (down) in [-1, 1] to a boolean array.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Inside = Callable[[np.ndarray, np.ndarray], np.ndarray]
Points = tuple[tuple[float, float], ...]


def polygon(*points: tuple[float, float]) -> Inside:
    """Even-odd rule."""

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


def wheel(*radii: float, turns: int, start: float = -90.0) -> Points:
    """Points around the centre whose radii repeat; rounded, so that libm's last bit is never seen."""
    count = turns * len(radii)
    angles = [math.radians(start + 360 * k / count) for k in range(count)]
    ring = [radii[k % len(radii)] for k in range(count)]
    return tuple((round(r * math.cos(a), 5), round(r * math.sin(a), 5)) for r, a in zip(ring, angles, strict=True))


OUTLINES: dict[str, Inside] = {
    "circle": ellipse(0, 0, 0.94),
    "square": box(-0.84, -0.84, 0.84, 0.84),
    "star": polygon(*wheel(1.06, 0.46, turns=5)),
    "heart": union(
        ellipse(-0.45, -0.36, 0.5),
        ellipse(0.45, -0.36, 0.5),
        polygon((-0.91, -0.18), (-0.4, -0.5), (0.4, -0.5), (0.91, -0.18), (0, 0.95)),
    ),
    "triangle": polygon((0, -0.95), (1.0, 0.82), (-1.0, 0.82)),
    "house": union(
        polygon((0, -0.98), (1.0, -0.12), (-1.0, -0.12)),
        without(box(-0.72, -0.14, 0.72, 0.9), box(-0.2, 0.3, 0.2, 0.9)),
    ),
    "tree": union(
        polygon((0, -1), (0.55, -0.35), (-0.55, -0.35)),
        polygon((0, -0.62), (0.75, 0.12), (-0.75, 0.12)),
        polygon((0, -0.25), (0.92, 0.6), (-0.92, 0.6)),
        box(-0.18, 0.55, 0.18, 0.98),
    ),
    "flower": without(union(*(ellipse(0.58 * x, 0.58 * y, 0.42) for x, y in wheel(1.0, turns=5))), ellipse(0, 0, 0.2)),
    "diamond": polygon((0, -1), (0.74, 0), (0, 1), (-0.74, 0)),
    "ring": without(ellipse(0, 0, 0.97), ellipse(0, 0, 0.4)),
    "moon": without(ellipse(-0.05, 0, 0.98), ellipse(0.42, -0.12, 0.78)),
    "cross": union(box(-0.34, -0.94, 0.34, 0.94), box(-0.94, -0.34, 0.94, 0.34)),
    "fish": union(ellipse(-0.2, 0, 0.76, 0.56), polygon((0.3, 0), (0.98, -0.6), (0.98, 0.6))),
    "boat": union(
        polygon((-0.98, 0.38), (0.98, 0.38), (0.6, 0.9), (-0.6, 0.9)),
        polygon((-0.02, -0.98), (-0.02, 0.24), (-0.82, 0.24)),
        polygon((0.14, -0.7), (0.78, 0.24), (0.14, 0.24)),
        box(-0.05, -0.98, 0.05, 0.4),
    ),
    "cloud": union(
        ellipse(-0.5, 0.14, 0.46),
        ellipse(0.0, -0.22, 0.54),
        ellipse(0.54, 0.12, 0.44),
        box(-0.55, 0.1, 0.58, 0.58),
    ),
    "leaf": common(ellipse(0.5, 0.5, 1.28), ellipse(-0.5, -0.5, 1.28)),
    "arrow": union(polygon((1.0, 0), (0.1, -0.85), (0.1, 0.85)), box(-0.95, -0.34, 0.15, 0.34)),
    "drop": union(ellipse(0, 0.32, 0.64), polygon((0, -1), (0.57, 0.03), (-0.57, 0.03))),
    "hexagon": polygon(*wheel(1.0, turns=6, start=0.0)),
    "oval": ellipse(0, 0, 1.0, 0.6),
    "dome": common(ellipse(0, 0.5, 1.0, 1.06), box(-1, -1, 1, 0.5)),
    "mushroom": union(common(ellipse(0, 0.06, 0.96, 0.96), box(-1, -1, 1, 0.1)), box(-0.28, 0.0, 0.28, 0.94)),
    "bolt": polygon((0.0, -1), (-0.84, 0.24), (-0.2, 0.24), (-0.5, 1), (0.84, -0.4), (0.22, -0.4), (0.66, -1)),
    "bell": union(
        common(ellipse(0, -0.22, 0.56, 0.72), box(-1, -1, 1, 0.0)),
        polygon((-0.56, -0.2), (0.56, -0.2), (0.66, 0.3), (0.94, 0.62), (-0.94, 0.62), (-0.66, 0.3)),
        ellipse(0, 0.72, 0.24),
    ),
    "crown": polygon((-0.95, -0.6), (-0.45, 0.0), (0, -0.85), (0.45, 0.0), (0.95, -0.6), (0.78, 0.78), (-0.78, 0.78)),
    "apple": without(
        union(ellipse(-0.36, 0.2, 0.56, 0.72), ellipse(0.36, 0.2, 0.56, 0.72), ellipse(0.28, -0.78, 0.26, 0.15)),
        polygon((-0.22, -0.66), (0.22, -0.66), (0, -0.2)),
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
        polygon((-0.3, 0.1), (-0.86, 0.85), (-0.3, 0.62)),
        polygon((0.3, 0.1), (0.86, 0.85), (0.3, 0.62)),
        polygon((-0.2, 0.66), (0.2, 0.66), (0, 1.0)),
    ),
    "cup": union(
        polygon((-0.85, -0.75), (0.5, -0.75), (0.4, 0.85), (-0.75, 0.85)),
        without(ellipse(0.5, -0.05, 0.48), ellipse(0.5, -0.05, 0.24)),
    ),
    "gear": without(union(ellipse(0, 0, 0.74), polygon(*wheel(1.05, 1.05, 0.6, 0.6, turns=8))), ellipse(0, 0, 0.3)),
    "hourglass": union(
        polygon((-0.78, -0.85), (0.78, -0.85), (0.1, 0.0), (0.78, 0.85), (-0.78, 0.85), (-0.1, 0.0)),
        box(-0.88, -0.98, 0.88, -0.76),
        box(-0.88, 0.76, 0.88, 0.98),
    ),
}
