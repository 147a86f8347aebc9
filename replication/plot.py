"""Plots a part of a claim: its value, its interval and each seed, with the bound and the paper's figure.

Positions are percentages of the width, so that a page can draw them at any width with markers of constant size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from replication.bootstrap import PartResult
from replication.claim import Part
from replication.replay import Corrected

PADDING = 6.0  # margin at each side, in percent of the width
FAR = 2.0  # paper figures further away than this many widths of our figures are drawn as an arrow at the edge


@dataclass(frozen=True)
class Mark:
    """A position in percent, its text, and the side on which the text has room."""

    x: float
    text: str = ""

    @property
    def anchor(self) -> str:
        return "start" if self.x < 15 else "end" if self.x > 85 else "middle"


@dataclass(frozen=True)
class PartPlot:
    """inside: the range that the part's bounds allow. low, high: the interval. holm: the corrected interval.

    control: (low, value, high) of the control, or None. paper: the paper's figure. ``beyond``: -1 or 1 if that figure
        lies beyond the left or right edge.
    """

    inside: tuple[float, float]
    bounds: tuple[Mark, ...]
    low: float
    high: float
    value: float
    seeds: tuple[float, ...]
    holm: tuple[float, float]
    control: tuple[float, float, float] | None
    paper: Mark | None
    beyond: int
    summary: str


def plot_part(part: Part, result: PartResult, corrected: Corrected, control: PartResult | None) -> PartPlot | None:
    """Returns the plot, or None if there is no number to draw."""
    ours = [result.value, result.low, result.high, corrected.low, corrected.high, *result.seeds]
    if not all(map(math.isfinite, ours)):
        return None
    limits = [bound for bound in (part.lower, part.upper) if math.isfinite(bound)]
    others = [control.value, control.low, control.high] if control else []
    others = others if all(map(math.isfinite, others)) else []
    left, right = _range([*ours, *limits, *others], part.paper_value)

    def at(value: float) -> float:
        share = (value - left) / (right - left)
        return round(PADDING + (100 - 2 * PADDING) * min(1.0, max(0.0, share)), 2)

    beyond = 0
    if part.paper_value is not None:
        beyond = -1 if part.paper_value < left else 1 if part.paper_value > right else 0
    return PartPlot(
        inside=(
            at(part.lower) if math.isfinite(part.lower) else 0.0,
            at(part.upper) if math.isfinite(part.upper) else 100.0,
        ),
        bounds=tuple(Mark(at(bound), f"{bound:.4g}") for bound in limits),
        low=at(result.low),
        high=at(result.high),
        value=at(result.value),
        seeds=tuple(at(seed) for seed in result.seeds),
        holm=(at(corrected.low), at(corrected.high)),
        control=(at(others[1]), at(others[0]), at(others[2])) if others else None,
        paper=None if part.paper_value is None else Mark(at(part.paper_value), f"{part.paper_value:+.3g}"),
        beyond=beyond,
        summary=_summary(part, result),
    )


def _range(values: Sequence[float], paper: float | None) -> tuple[float, float]:
    left, right = min(values), max(values)
    width = right - left or abs(right) or 1.0
    if paper is not None and left - FAR * width <= paper <= right + FAR * width:
        left, right = min(left, paper), max(right, paper)
    return (left, right) if right > left else (left - width / 2, right + width / 2)


def _summary(part: Part, result: PartResult) -> str:
    """Describes the plot in words, for people who cannot see it."""
    paper = "" if part.paper_value is None else f"; the paper {part.paper_value:+.3g}"
    limits = [f"{name} {bound:.4g}" for name, bound in (("above", part.lower), ("below", part.upper))
              if math.isfinite(bound)]  # fmt: skip
    interval = f"{result.value:+.3g}, from {result.low:+.3g} to {result.high:+.3g}"
    return f"{part.statement}: {interval}; claimed {' and '.join(limits)}{paper}"
