"""Paints the backgrounds of scenes. Uses no sine function, so that every machine paints the same pixels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tellapart.utils.random_stream import RandomStream


class Canvas:
    """A background's canvas. Coordinates range from 0 to 64 at any size in pixels, and the name determines the random
    stream. ``pixels``: float, size × size × 3.
    """

    def __init__(self, size: int, *name: object) -> None:
        self.size = size
        self.rng = RandomStream("ground", *name)
        steps = (np.arange(size) + 0.5) * 64 / size
        self.x, self.y = steps[None, :], steps[:, None]
        self.pixels = np.zeros((size, size, 3))

    def noise(self, cells: int) -> np.ndarray:
        """Returns smooth noise, size × size, in [-1, 1], with ``cells`` hills per side."""
        lattice = self.tones((cells + 1) ** 2, 1).reshape(cells + 1, cells + 1)
        at = (np.arange(self.size) + 0.5) * cells / self.size
        low = at.astype(int)
        part = at - low
        part = part * part * (3 - 2 * part)
        rows = lattice[low] * (1 - part)[:, None] + lattice[low + 1] * part[:, None]
        noise: np.ndarray = rows[:, low] * (1 - part)[None, :] + rows[:, low + 1] * part[None, :]
        return noise

    def tones(self, count: int, most: float) -> np.ndarray:
        """Returns random numbers from -most to most."""
        return np.array([self.rng.uniform() for _ in range(count)]) * (2 * most) - most

    def fill(self, red: int, green: int, blue: int, shade: np.ndarray) -> Canvas:
        """Fills the canvas with a colour plus a shade (size × size, or with a value for each channel)."""
        self.pixels += np.array([red, green, blue]) + (shade if shade.ndim == 3 else shade[..., None])
        return self

    def mark(self, mask: np.ndarray, *colour: int) -> Canvas:
        """Paints the pixels in a mask."""
        self.pixels[np.broadcast_to(mask, (self.size, self.size))] = colour
        return self

    def specks(self, count: int, width: float, height: float, *colour: int) -> Canvas:
        """Paints small boxes at random places."""
        for _ in range(count):
            cx, cy = self.rng.uniform() * 64, self.rng.uniform() * 64
            self.mark((abs(self.x - cx) < width) & (abs(self.y - cy) < height), *colour)
        return self

    def downwards(self, *slopes: float) -> np.ndarray:
        """Returns a shade that changes each channel from the top to the bottom."""
        shade: np.ndarray = (self.y[..., None] - 32) * np.array(slopes)
        return shade


def _wave(phase: np.ndarray) -> np.ndarray:
    """Returns a sine-like wave with period 1, in [-1, 1]. It consists of parabolas, so unlike sin, it is the same on
    every machine.
    """
    t = phase % 1.0
    return np.where(t < 0.5, 16 * t * (0.5 - t), -16 * (t - 0.5) * (1 - t))


def _water(c: Canvas) -> Canvas:
    line = _wave((c.y + 1.8 * _wave(c.x / 16.0 + c.rng.uniform())) / 8.0 + 0.35 * c.noise(3))
    return c.fill(142, 196, 222, 5 * c.noise(4) + np.where(line > 0.86, 26.0, np.where(line < -0.9, -14.0, 0.0)))


def _sky(c: Canvas) -> Canvas:
    c.fill(176, 214, 245, c.downwards(0.65, 0.38, 0.12))
    puff = np.clip(c.noise(4) + 0.4 * c.noise(8) - 0.25, 0, 0.5)[..., None] * 1.5
    c.pixels = c.pixels * (1 - puff) + 255 * puff
    return c


def _wood(c: Canvas) -> Canvas:
    plank = np.floor(c.y / 12.8)
    tone = c.tones(6, 10)[plank.astype(int)]
    joint = (c.y % 12.8 < 1.1) | ((abs((c.x + plank * 23) % 64 - 20) < 0.55) & (c.y > -1))
    return c.fill(214, 176, 132, tone + _wave((c.y + 1.4 * c.noise(3)) / 3.2) * 5).mark(joint, 172, 132, 92)


def _brick(c: Canvas) -> Canvas:
    row = np.floor(c.y / 8)
    across = c.x + 8 * (row % 2)
    which = (row * 5 + np.floor(across / 16)).astype(int) % 64
    return c.fill(200, 146, 118, c.tones(64, 10)[which]).mark((c.y % 8 < 1.1) | (across % 16 < 1.1), 232, 216, 204)


def _tile(c: Canvas) -> Canvas:
    which = (np.floor(c.x / 16) + np.floor(c.y / 16)) % 2
    c.fill(222, 234, 226, np.array([-30, -14, -22]) * which[..., None] + 2 * c.noise(6)[..., None])
    return c.mark((c.x % 16 < 1.1) | (c.y % 16 < 1.1), 246, 250, 247)


def _cloth(c: Canvas) -> Canvas:
    weave = np.where((np.floor(c.x / 2) + np.floor(c.y / 2)) % 2 == 0, 6.0, -6.0)
    return c.fill(216, 184, 206, weave - 15.0 * ((c.x % 21 < 3) | (c.y % 21 < 3)) + 3 * c.noise(4))


_PAINTS: dict[str, Callable[[Canvas], Canvas]] = {
    "grass": lambda c: (
        c.fill(170, 208, 138, 9 * c.noise(5)).specks(75, 0.5, 1.6, 143, 188, 112).specks(25, 0.5, 1.2, 196, 224, 160)
    ),
    "sand": lambda c: c.fill(236, 214, 168, 6 * _wave((c.y + 2.2 * c.noise(3)) / 9.0) + 4 * c.noise(16)).specks(
        40, 0.5, 0.5, 212, 184, 134
    ),
    "snow": lambda c: (
        c.fill(233, 241, 248, 8 * c.noise(4)).specks(38, 0.6, 0.6, 255, 255, 255).specks(16, 0.5, 0.5, 200, 217, 233)
    ),
    "water": _water,
    "sky": _sky,
    "wood": _wood,
    "stone": lambda c: c.fill(186, 187, 184, 11 * c.noise(7) + 5 * c.noise(20) - 40 * (abs(c.noise(4)) < 0.035)),
    "brick": _brick,
    "night": lambda c: (
        c.fill(52, 58, 104, c.downwards(0.2, 0.25, 0.45) + 4 * c.noise(4)[..., None])
        .specks(22, 0.5, 0.5, 236, 232, 200)
        .specks(18, 0.5, 0.5, 128, 134, 176)
    ),
    "tile": _tile,
    "soil": lambda c: (
        c.fill(142, 112, 90, 8 * c.noise(8) + 6 * c.noise(20))
        .specks(22, 1.0, 0.7, 170, 142, 118)
        .specks(22, 0.6, 0.6, 110, 84, 66)
    ),
    "cloth": _cloth,
    "paper": lambda c: c.fill(250, 248, 242, 1.5 * c.noise(10)),
}


@lru_cache(maxsize=256)
def ground(name: str, grain: int, size: int) -> np.ndarray:
    """Returns the background's pixels, int32, size × size × 3. Callers must copy the array before drawing on it."""
    painted = _PAINTS[name](Canvas(size, name, grain // 2)).pixels
    pixels = np.clip(np.rint(painted), 0, 255).astype(np.int32)
    pixels = np.ascontiguousarray(pixels[:, ::-1] if grain % 2 else pixels)
    pixels.flags.writeable = False
    return pixels
