"""Draws the trade-off between recall and CIDEr over the course of training, for several runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.folder import RunFolder
from tellapart.report.plot import Plot, PlotFrame, padded, value_text
from tellapart.report.shown_metric import ShownMetric, metric_of
from tellapart.report.system_comparison import main_metric

VALIDATIONS = 60  # maximum number of points per line; if there are more validations, evenly spaced ones are drawn
COST = "cider"
Point = tuple[str, float, float]  # when it was measured, CIDEr, and recall in percent


@dataclass(frozen=True)
class Course:
    """A run's trajectory from its first measurement to its last; ``points[kept]`` is its selected checkpoint.

    test: equal for runs that were measured in the same way on the same ``n`` pictures.
    """

    name: str
    points: list[Point]
    kept: int
    test: object
    recall: ShownMetric
    n: int | None


@dataclass(frozen=True)
class TradeOff(Plot):
    """The chart of CIDEr (x) and recall (y)."""

    courses: list[Course]
    left_out: list[str]
    frame = PlotFrame(620, 380, left=52, right=22, top=18, bottom=46)
    x_count = 7

    @cached_property
    def x_range(self) -> tuple[float, float]:
        """Returns the range of CIDEr plus a margin."""
        return padded([cost for course in self.courses for _, cost, _ in course.points], 0.08)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        """Returns the range of recall plus a margin."""
        return padded([value for course in self.courses for _, _, value in course.points], 0.08)

    @property
    def recall(self) -> str:
        """Returns the recall metric's name."""
        return self.courses[0].recall.name

    @property
    def setting(self) -> str:
        """Returns the settings of recall."""
        first = self.courses[0]
        return first.recall.setting(None if first.n is None else Interval(n=first.n))

    @property
    def has_later(self) -> bool:
        """Returns whether any run continued after its selected checkpoint."""
        return any(course.kept + 1 < len(course.points) for course in self.courses)

    def text(self, point: Point) -> str:
        """Formats a point's values."""
        return f"{self.recall} {value_text(point[2])}, CIDEr {value_text(point[1])}"

    def summary(self, course: Course) -> str:
        """Describes a course from its first point to its selected checkpoint."""
        first, last = course.points[0], course.points[course.kept]
        return f"from {self.text(first)} ({first[0]}) to {self.text(last)} ({last[0]}, kept)"


def trade_off(folders: Sequence[RunFolder], names: Sequence[str]) -> TradeOff | None:
    """Builds the chart for the runs whose validations measured both metrics. Returns None if no run measured them at
    least twice.
    """
    key = main_metric([key for folder in folders for key in folder.log.validation])
    found = [(name, key and _course(name, folder, key)) for name, folder in zip(names, folders, strict=True)]
    courses = [course for _, course in found if course]
    if not courses:
        return None
    tests = [course.test for course in courses]
    common = max(tests, key=tests.count)
    left_out = {
        "one of the two metrics is missing": [name for name, course in found if not course],
        "they are not comparable (different pictures or settings)": [c.name for c in courses if c.test != common],
    }
    lines = [f"Not drawn because {why}: {', '.join(runs)}." for why, runs in left_out.items() if runs]
    return TradeOff([course for course in courses if course.test == common], lines)


def _course(name: str, folder: RunFolder, key: str) -> Course | None:
    """Returns the measurements at the steps at which validation logged both metrics, or None if there are fewer than
    two such steps.
    """
    costs, recalls = folder.log.validation.get(COST, {}), folder.log.validation.get(key, {})
    steps = sorted(costs.keys() & recalls.keys())
    if len(steps) < 2:
        return None
    every = -(-len(steps) // VALIDATIONS)
    best = folder.log.best_step if folder.log.best_step in steps else steps[-1]
    shown = sorted({*steps[::every], steps[-1], best})
    points = [(f"step {step:,}", costs[step], recalls[step]) for step in shown]
    # Validation uses as many candidates as the test, but different pictures.
    recall = metric_of(folder.results or Results([]), key)
    return Course(name, points, shown.index(best), _validation(folder), recall, folder.log.validated)


def _validation(folder: RunFolder) -> object:
    """Returns the recipe settings that must be the same in two runs for their validations to share a chart."""
    try:
        recipe = tomllib.loads(folder.recipe or "")
    except tomllib.TOMLDecodeError:
        return id(folder)
    how = {key: recipe.get("validation", {}).get(key) for key in ("decoding", "limit")}
    pictures, among = recipe.get("data", {}).get("validation"), recipe.get("evaluation", {}).get("lookalike")
    return json.dumps([pictures, recipe.get("scorer"), how, among], sort_keys=True, default=str)
