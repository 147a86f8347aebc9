"""Draws the trade-off between recall and CIDEr over the course of training, for several runs."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.comparable import test_conditions
from tellapart.report.folder import RunFolder
from tellapart.report.plot import Plot, PlotFrame, padded, value_text
from tellapart.report.shown_metric import ShownMetric, metric_of
from tellapart.report.verdict import compare, main_metric

VALIDATIONS = 60  # maximum number of points per line; if there are more validations, evenly spaced ones are drawn
COST = "cider"
IN_TRAINING = "on the validation pictures, during training"
BY_TEST = "on the test pictures, before and after training"
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
    """The chart of CIDEr (x) and recall (y). ``measured``: `IN_TRAINING` or `BY_TEST`."""

    measured: str
    courses: list[Course]
    left_out: list[str]
    frame = PlotFrame(620, 380, left=52, right=22, top=18, bottom=46)
    x_count = 7

    @cached_property
    def x_range(self) -> tuple[float, float]:  # type: ignore[override]
        """Returns the range of CIDEr plus a margin."""
        return padded([cost for course in self.courses for _, cost, _ in course.points], 0.08)

    @cached_property
    def y_range(self) -> tuple[float, float]:  # type: ignore[override]
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
        kept = ", kept" if self.measured == IN_TRAINING else ""
        return f"from {self.text(first)} ({first[0]}) to {self.text(last)} ({last[0]}{kept})"


def trade_off(folders: Sequence[RunFolder], names: Sequence[str]) -> TradeOff | None:
    """Builds the chart for the runs that measured both metrics. Returns None if no run measured them at least twice.

    Uses the validation logs unless more runs have test results before and after training. The two are not mixed,
    because validation and test use different pictures.
    """
    evaluated = [folder.results or Results([]) for folder in folders]
    log_key = main_metric([key for folder in folders for key in folder.log.validation])
    test_key = main_metric([key for results in evaluated for system in results.systems.values() for key in system])
    logged = [_logged(name, folder, log_key) for name, folder in zip(names, folders, strict=True)]
    tested = [_tested(name, results, test_key) for name, results in zip(names, evaluated, strict=True)]
    # For a single run, the table already shows the test results.
    use_tests = len(folders) > 1 and tested.count(None) < logged.count(None)
    found = tested if use_tests else logged
    courses = [course for course in found if course is not None]
    if not courses:
        return None
    tests = [course.test for course in courses]
    common = max(tests, key=tests.count)
    left_out = {
        "one of the two metrics is missing": [name for name, own in zip(names, found, strict=True) if own is None],
        "they are not comparable (different pictures or settings)": [c.name for c in courses if c.test != common],
    }
    return TradeOff(
        BY_TEST if use_tests else IN_TRAINING,
        [course for course in courses if course.test == common],
        [f"Not drawn because {why}: {', '.join(runs)}." for why, runs in left_out.items() if runs],
    )


def _logged(name: str, folder: RunFolder, key: str | None) -> Course | None:
    """Returns the measurements at the steps at which validation logged both metrics, or None if there are fewer than
    two such steps.
    """
    costs, recalls = folder.log.validation.get(COST, {}), folder.log.validation.get(key or "", {})
    steps = sorted(costs.keys() & recalls.keys())
    if key is None or len(steps) < 2:
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


def _tested(name: str, results: Results, key: str | None) -> Course | None:
    """Returns the results before and after training, or None if one of the metrics is missing in either of them."""
    comparison = compare(results)
    if comparison is None or key is None:
        return None
    points = []
    for system in (comparison.before, comparison.after):
        cost, recall = (results.systems[system].get(metric, Interval()) for metric in (COST, key))
        points.append((system, cost.value, recall.value))
    if any(math.isnan(value) for _, *values in points for value in values):
        return None
    test = (test_conditions(results, COST), test_conditions(results, key))
    return Course(name, points, 1, test, metric_of(results, key), results.systems[comparison.after][key].n or None)
