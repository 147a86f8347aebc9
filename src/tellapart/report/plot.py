"""Lays out plots: maps values to positions, and chooses and formats ticks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

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


class Plot(ABC):
    """A plot's scales, for the template. Subclasses define the frame and the ranges of the values."""

    frame: ClassVar[PlotFrame]
    x_count: ClassVar[int] = 5  # approximate number of ticks

    @property
    @abstractmethod
    def x_range(self) -> tuple[float, float]:
        """Returns the lowest and highest value on the horizontal axis."""

    @property
    @abstractmethod
    def y_range(self) -> tuple[float, float]:
        """Returns the lowest and highest value on the vertical axis."""

    @staticmethod
    def x_text(value: float) -> str:
        """Formats a value on the horizontal axis."""
        return value_text(value)

    def x(self, value: float) -> float:
        """Returns a value's horizontal position."""
        return round(self.frame.x(*self.x_range)(value), 1)

    def y(self, value: float) -> float:
        """Returns a value's vertical position. If the value is out of range, the position is at the edge."""
        low, high = self.y_range
        return round(self.frame.y(low, high)(min(max(value, low), high)), 1)

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Returns the positions and labels of the ticks on the horizontal axis."""
        return [(self.x(tick), self.x_text(tick)) for tick in nice_ticks(*self.x_range, self.x_count)]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        """Returns the positions and labels of the ticks on the vertical axis."""
        return [(self.y(tick), value_text(tick)) for tick in nice_ticks(*self.y_range)]


def padded(values: Sequence[float], share: float) -> tuple[float, float]:
    """Returns the range of the values plus a margin, as a share of the range."""
    margin = share * (max(values) - min(values)) or abs(values[0]) * 0.1 or 1.0
    return min(values) - margin, max(values) + margin


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Returns a linear function that maps ``low``..``high`` to ``start``..``end``. If ``low`` equals ``high``, it maps
    that value to the middle.
    """
    span = (high - low) or 1.0
    middle = 0.0 if high > low else 0.5
    return lambda value: start + (end - start) * ((value - low) / span + middle)
