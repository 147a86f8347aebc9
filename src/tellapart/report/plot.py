"""Lays out plots: maps values to positions, and chooses and formats ticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tellapart.report.number_text import MINUS


@dataclass(frozen=True)
class PlotFrame:
    """A plot's view box, which is ``width``×``height`` in size, and its margins."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def x(self, low: float, high: float) -> Callable[[float], float]:
        """Returns a function that maps values in ``low``..``high`` to horizontal positions inside the margins."""
        return scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Callable[[float], float]:
        """Returns a function that maps values in ``low``..``high`` to vertical positions inside the margins. Higher
        values are further up.
        """
        return scale(low, high, self.height - self.bottom, self.top)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Returns about ``count`` round values in ``low``..``high``, spaced by 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    gap = power * next(m for m, most in ((1, 1.5), (2, 3.5), (5, 7.5), (10, math.inf)) if raw / power < most)
    first = math.ceil(low / gap - 1e-9)
    return [k * gap for k in range(first, math.floor(high / gap + 1e-9) + 1)]


def value_text(x: float) -> str:
    """Formats a value with four significant digits, or with an exponent if it is very large or small."""
    if x == 0:
        return "0"
    text = f"{abs(x):.4g}" if 1e-3 <= abs(x) < 1e5 else f"{abs(x):.3g}"
    return (MINUS if x < 0 else "") + text


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Returns a linear function that maps ``low``..``high`` to ``start``..``end``. If ``low`` equals ``high``, it maps
    that value to the middle.
    """
    span = (high - low) or 1.0
    middle = 0.0 if high > low else 0.5
    return lambda value: start + (end - start) * ((value - low) / span + middle)
