"""Grounds of the scenes: soft patterned grounds, pale, so that every object stands out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tellapart.utils.rng import RandomStream

FloatArray = npt.NDArray[np.float64]
Paint = Callable[["Canvas"], FloatArray]


class Canvas:
    """Coordinates in 0..64 whatever the size in pixels, a base colour, and frozen rng."""

    def __init__(self, size: int, *name: object) -> None:
        self.size = size
        self.rng = RandomStream("ground", *name)
        steps = (np.arange(size) + 0.5) * 64 / size
        self.x, self.y = steps[None, :], steps[:, None]

    def noise(self, cells: int) -> FloatArray:
        """Smooth noise in [-1, 1] with ``cells`` hills a side, size × size."""
        lattice = np.array([[self.rng.uniform() for _ in range(cells + 1)] for _ in range(cells + 1)]) * 2 - 1
        at = (np.arange(self.size) + 0.5) * cells / self.size
        low = at.astype(int)
        part = at - low
        part = part * part * (3 - 2 * part)
        rows = lattice[low] * (1 - part)[:, None] + lattice[low + 1] * part[:, None]
        noise: FloatArray = rows[:, low] * (1 - part)[None, :] + rows[:, low + 1] * part[None, :]
        return noise

    def flat(self, red: int, green: int, blue: int) -> FloatArray:
        return np.broadcast_to(np.array([red, green, blue], float), (self.size, self.size, 3)).copy()

    def specks(self, count: int, width: float, height: float) -> np.ndarray:
        """Where little boxes fall, as a boolean array."""
        mask = np.zeros((self.size, self.size), bool)
        for _ in range(count):
            cx, cy = self.rng.uniform() * 64, self.rng.uniform() * 64
            mask |= (abs(self.x - cx) < width) & (abs(self.y - cy) < height)
        return mask


def _wave(phase: np.ndarray) -> FloatArray:
    """A sine-like wave of period 1 in [-1, 1] from parabolas: exact on every machine, unlike sin."""
    t = phase % 1.0
    wave: FloatArray = np.where(t < 0.5, 16 * t * (0.5 - t), -16 * (t - 0.5) * (1 - t))
    return wave


def _grass(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(170, 208, 138) + 9 * c.noise(5)[..., None]
    out[c.specks(75, 0.5, 1.6)] = (143, 188, 112)
    out[c.specks(25, 0.5, 1.2)] = (196, 224, 160)
    return out


def _sand(c: Canvas) -> FloatArray:
    ripple = _wave((c.y + 2.2 * c.noise(3)) / 9.0)
    out: FloatArray = c.flat(236, 214, 168) + 6 * ripple[..., None] + 4 * c.noise(16)[..., None]
    out[c.specks(40, 0.5, 0.5)] = (212, 184, 134)
    return out


def _snow(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(233, 241, 248) + 8 * c.noise(4)[..., None]
    out[c.specks(38, 0.6, 0.6)] = (255, 255, 255)
    out[c.specks(16, 0.5, 0.5)] = (200, 217, 233)
    return out


def _water(c: Canvas) -> FloatArray:
    line = _wave((c.y + 1.8 * _wave(c.x / 16.0 + c.rng.uniform())) / 8.0 + 0.35 * c.noise(3))
    out: FloatArray = c.flat(142, 196, 222) + 5 * c.noise(4)[..., None]
    out += np.where(line > 0.86, 26.0, np.where(line < -0.9, -14.0, 0.0))[..., None]
    return out


def _sky(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(176, 214, 245) + (c.y[..., None] - 32) * np.array([0.65, 0.38, 0.12])
    puff = np.clip(c.noise(4) + 0.4 * c.noise(8) - 0.25, 0, 0.5)[..., None] * 1.5
    clouded: FloatArray = out * (1 - puff) + 255 * puff
    return clouded


def _wood(c: Canvas) -> FloatArray:
    plank = np.floor(c.y / 12.8)
    tone = np.array([c.rng.uniform() for _ in range(6)])[plank.astype(int)] * 20 - 10
    grain = _wave((c.y + 1.4 * c.noise(3)) / 3.2) * 5
    out: FloatArray = c.flat(214, 176, 132) + (tone + grain)[..., None]
    joint = (c.y % 12.8 < 1.1) | ((abs((c.x + plank * 23) % 64 - 20) < 0.55) & (c.y > -1))
    out[np.broadcast_to(joint, (c.size, c.size))] = (172, 132, 92)
    return out


def _stone(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(186, 187, 184) + (11 * c.noise(7) + 5 * c.noise(20))[..., None]
    crack = abs(c.noise(4)) < 0.035
    out[crack] -= 40
    return out


def _brick(c: Canvas) -> FloatArray:
    row = np.floor(c.y / 8)
    across = c.x + 8 * (row % 2)
    tones = np.array([c.rng.uniform() for _ in range(64)]) * 20 - 10
    which = (row * 5 + np.floor(across / 16)).astype(int) % 64
    out: FloatArray = c.flat(200, 146, 118) + tones[which][..., None]
    out[(c.y % 8 < 1.1) | (across % 16 < 1.1)] = (232, 216, 204)
    return out


def _night(c: Canvas) -> FloatArray:
    out: FloatArray = (
        c.flat(52, 58, 104) + (c.y[..., None] - 32) * np.array([0.2, 0.25, 0.45]) + 4 * c.noise(4)[..., None]
    )
    out[c.specks(22, 0.5, 0.5)] = (236, 232, 200)
    out[c.specks(18, 0.5, 0.5)] = (128, 134, 176)
    return out


def _tile(c: Canvas) -> FloatArray:
    which = (np.floor(c.x / 16) + np.floor(c.y / 16)) % 2
    out: FloatArray = c.flat(222, 234, 226) - np.array([30, 14, 22]) * which[..., None] + 2 * c.noise(6)[..., None]
    out[(c.x % 16 < 1.1) | (c.y % 16 < 1.1)] = (246, 250, 247)
    return out


def _soil(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(142, 112, 90) + (8 * c.noise(8) + 6 * c.noise(20))[..., None]
    out[c.specks(22, 1.0, 0.7)] = (170, 142, 118)
    out[c.specks(22, 0.6, 0.6)] = (110, 84, 66)
    return out


def _cloth(c: Canvas) -> FloatArray:
    weave = np.where((np.floor(c.x / 2) + np.floor(c.y / 2)) % 2 == 0, 6.0, -6.0)
    band = np.where((c.x % 21 < 3) | (c.y % 21 < 3), -15.0, 0.0)
    out: FloatArray = c.flat(216, 184, 206) + (weave + band + 3 * c.noise(4))[..., None]
    return out


def _paper(c: Canvas) -> FloatArray:
    out: FloatArray = c.flat(250, 248, 242) + 1.5 * c.noise(10)[..., None]
    return out


_PAINTS: dict[str, Paint] = {
    "grass": _grass, "sand": _sand, "snow": _snow, "water": _water, "sky": _sky, "wood": _wood, "stone": _stone,
    "brick": _brick, "night": _night, "tile": _tile, "soil": _soil, "cloth": _cloth, "paper": _paper,
}  # fmt: skip


@lru_cache(maxsize=256)
def ground(name: str, grain: int, size: int) -> np.ndarray:
    """The ground's pixels, int32 size × size × 3; the caller copies before drawing on it."""
    pixels = np.clip(np.rint(_PAINTS[name](Canvas(size, name, grain // 2))), 0, 255).astype(np.int32)
    pixels = np.ascontiguousarray(pixels[:, ::-1] if grain % 2 else pixels)
    pixels.flags.writeable = False
    return pixels
