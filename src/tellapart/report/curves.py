"""Prepares learning curves to be drawn as SVG, which needs no scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tellapart.report.plot import Plot, PlotFrame, padded, value_text
from tellapart.report.shown_metric import describe
from tellapart.report.training_log import TrainingLog

POINTS = 120  # maximum number of points in a learning curve; values are averaged if the log has more lines
_FIRST = ("loss", "reward")
CURVE = PlotFrame(360, 210, left=44, right=10, top=14, bottom=28)


@dataclass(frozen=True)
class Bucket:
    """The mean and range of consecutive log lines that are drawn as one point."""

    first: int
    last: int
    mean: float
    low: float
    high: float

    @property
    def step(self) -> float:
        """Returns the point's position on the step axis."""
        return (self.first + self.last) / 2

    @property
    def text(self) -> str:
        """Returns the point's hover text."""
        steps = f"step {self.first:,}" if self.first == self.last else f"steps {self.first:,}–{self.last:,}"
        return f"{steps}: {value_text(self.mean)}"


@dataclass(frozen=True)
class Chart(Plot):
    """The curve of one logged value.

    series: maps each step to its value; contains at least one step.
    best: the step of the selected checkpoint, which is marked, or None if the series has no value at that step.
    """

    title: str
    series: Mapping[int, float]
    best: int | None = None
    frame = CURVE

    @staticmethod
    def x_text(value: float) -> str:
        """Formats a step: 800, 1.5k, 20k, 2M."""
        for unit, letter in ((1_000_000, "M"), (1_000, "k")):
            if abs(value) >= unit:
                return f"{value / unit:g}{letter}"
        return f"{value:g}"

    @cached_property
    def buckets(self) -> list[Bucket]:
        """Returns the points to draw."""
        return thin(self.series)

    @cached_property
    def x_range(self) -> tuple[float, float]:
        """Returns the first and the last step."""
        return self.buckets[0].step, self.buckets[-1].step

    @cached_property
    def y_range(self) -> tuple[float, float]:
        """Returns the range of the means plus a margin. Single spikes can exceed it, so that they do not flatten the
        curve.
        """
        return padded([bucket.mean for bucket in self.buckets], 0.15)

    @property
    def thinned(self) -> bool:
        """Returns whether some points are means of several values."""
        return len(self.buckets) < len(self.series)

    @property
    def summary(self) -> str:
        """Describes the curve in one sentence."""
        first, last, best = min(self.series), max(self.series), self.best
        if first == last:
            return f"{self.title}: {value_text(self.series[first])} at step {first:,}, its only value."
        ends = ", ".join(f"{value_text(self.series[step])} at step {step:,}" for step in (first, last))
        kept = "" if best is None else f"; the selected checkpoint, step {best:,}, has {value_text(self.series[best])}"
        return f"{self.title}: {ends}{kept}."


def thin(series: Mapping[int, float], points: int = POINTS) -> list[Bucket]:
    """Averages a series into at most ``points`` buckets of consecutive steps. All buckets have nearly the same size."""
    items = sorted(series.items())
    count = min(points, len(items))
    buckets = []
    for i in range(count):
        steps, values = zip(*items[i * len(items) // count : (i + 1) * len(items) // count], strict=True)
        buckets.append(Bucket(steps[0], steps[-1], math.fsum(values) / len(values), min(values), max(values)))
    return buckets


def charts(log: TrainingLog) -> tuple[list[Chart], list[Chart]]:
    """Returns the main curves and all other curves. The main ones are loss, reward and validation R@1 or, if that was
    not logged, validation loss.
    """
    recalls = sorted((key for key in log.validation if key.startswith("recall@1")), key=lambda key: key.count("random"))
    leading = recalls[:1] or [key for key in ("loss",) if key in log.validation]
    validation = {
        key: Chart(f"Validation {describe(key).name}", series, log.best_step if log.best_step in series else None)
        for key, series in log.validation.items()
    }
    first = [Chart(key.capitalize(), log.training[key]) for key in _FIRST if key in log.training]
    first += [validation.pop(key) for key in leading]
    rest = [Chart(key, series) for key, series in log.training.items() if key not in _FIRST]
    return first, [*rest, *validation.values()]
