"""Cut-outs of shapes, ready to be coloured: how much of each pixel is fill, second tone, edge and shadow.

Everything is counted in whole numbers on a grid finer than the pixels, and kept, so that drawing a
picture is a handful of small integer operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .shapes import OUTLINES

FINE = 4
"""Fine rows and columns per pixel."""
_PAD = 3
"""Pixels around the shape, for edge and shadow."""
_WHOLE = 256


@dataclass(frozen=True, slots=True)
class Sprite:
    """Weights in 0..256 of height × width × 1; ``keep`` is what stays of the ground."""

    keep: np.ndarray
    fill: np.ndarray
    second: np.ndarray
    edge: np.ndarray


@lru_cache(maxsize=4096)
def _mask(shape: str, fine_diameter: int, side: int) -> np.ndarray:
    """The shape on a square fine grid of ``side``, centred."""
    steps = (2 * np.arange(side) + 1 - side) / fine_diameter
    return OUTLINES[shape](steps[None, :], steps[:, None])


def _eroded(mask: np.ndarray, radius: int) -> np.ndarray:
    """What is at least ``radius`` fine steps inside."""
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
    # A narrow shape gets a thinner contour, or its hollow would close up.
    while contour > thinnest and core.sum() * 3 < mask.sum():
        contour -= 1
        core = _eroded(mask, contour)
    return mask, _eroded(mask, edge), core


@lru_cache(maxsize=4096)
def _pattern(texture: str, fine_diameter: int, side: int) -> np.ndarray:
    """Where the second tone lies, on the whole fine grid."""
    second: np.ndarray = np.zeros((side, side), dtype=bool)
    x = (2 * np.arange(side) + 1 - side)[None, :] / fine_diameter
    y = (2 * np.arange(side) + 1 - side)[:, None] / fine_diameter
    # Fewer repeats in small objects, so that a repeat never falls below three pixels.
    pixels = fine_diameter / FINE
    if texture == "striped":
        period = max(0.5, 7.6 / pixels)
        second = ((x + y) / period) % 1.0 < 0.5
    elif texture == "dotted":
        period = max(0.52, 8.4 / pixels)
        row = np.floor(y / period * 1.12 + 0.5)
        u = (x / period + 0.5 * (row % 2) + 0.5) % 1.0 - 0.5
        v = (y / period * 1.12 + 0.5) % 1.0 - 0.5
        second = u * u + v * v < 0.115
    elif texture == "checked":
        period = max(0.66, 7.4 / pixels)
        second = (np.floor(x / period * 2 + 0.5) + np.floor(y / period * 2 + 0.5)) % 2 == 0
    elif texture == "ringed":
        period = max(0.52, 7.0 / pixels)
        second = (np.sqrt(x * x + y * y) / period + 0.25) % 1.0 < 0.5
    return second


def _counts(fine: np.ndarray) -> np.ndarray:
    """Fine cells per pixel, scaled to 0..256."""
    pixels = fine.shape[0] // FINE
    cells: np.ndarray = fine.reshape(pixels, FINE, pixels, FINE).sum(axis=(1, 3), dtype=np.int32)
    return cells * (_WHOLE // FINE**2)


def _blurred(weight: np.ndarray) -> np.ndarray:
    """A soft copy: twice the mean over three by three pixels."""
    for _ in range(2):
        padded = np.pad(weight, 1)
        rows = padded[:-2] + padded[1:-1] + padded[2:]
        weight = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) // 9
    return weight


@lru_cache(maxsize=16384)
def sprite(shape: str, texture: str, diameter: int, scale: int, dx: int, dy: int) -> Sprite:
    """The cut-out of a shape.

    ``diameter`` in units of 1/128 of the width; ``scale`` the picture's width in pixels; ``dx``, ``dy`` in
    fine steps (0..FINE-1), the part of the place that is smaller than a pixel. The sprite's side is even: its
    centre lies at the corner of the middle pixels.
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
