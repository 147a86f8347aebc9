"""Draws the trade-off between recall and CIDEr over the course of training, for several runs."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.comparable import test_conditions
from tellapart.report.folder import RunFolder
from tellapart.report.plot import PlotFrame, nice_ticks, value_text
from tellapart.report.shown_metric import ShownMetric, metric_of
from tellapart.report.verdict import compare, main_metric

TRADE_OFF = PlotFrame(620, 380, left=52, right=22, top=18, bottom=46)
VALIDATIONS = 60  # maximum number of points per line; if there are more validations, evenly spaced ones are drawn
COST = "cider"
IN_TRAINING = "on the validation pictures, during training"
BY_TEST = "on the test pictures, before and after training"


@dataclass(frozen=True)
class Spot:
    """The coordinates and hover text of one of a run's validations or tests."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Course:
    """A run's trajectory from its first measurement to its last; ``spots[kept]`` is its selected checkpoint."""

    name: str
    spots: list[Spot]
    kept: int
    summary: str


@dataclass(frozen=True)
class TradeOff:
    """Everything that the template needs to draw the chart. Coordinates refer to ``frame``'s view box."""

    recall: str
    measured: str
    courses: list[Course]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    setting: str
    left_out: list[str]
    frame: PlotFrame = TRADE_OFF

    @property
    def has_later(self) -> bool:
        """Returns whether any run continued after its selected checkpoint."""
        return any(course.kept + 1 < len(course.spots) for course in self.courses)


@dataclass(frozen=True)
class Measured:
    """A run's measurements.

    points: (when, CIDEr, recall in percent), in order.
    kept: index of the selected checkpoint in ``points``.
    test: equal for runs that were measured in the same way on the same ``n`` pictures.
    """

    points: list[tuple[str, float, float]]
    kept: int
    test: tuple[object, ...]
    recall: ShownMetric
    n: int | None


def trade_off(folders: Sequence[RunFolder], names: Sequence[str]) -> TradeOff | None:
    """Builds the chart for the runs that measured both metrics. Returns None if no run measured them at least twice.

    Uses the validation logs unless more runs have test results before and after training. The two are not mixed,
    because validation and test use different pictures.
    """
    log_key = main_metric([key for folder in folders for key in folder.log.validation])
    test_key = main_metric([key for folder in folders for key in _tested_keys(folder.results)])
    logged = [_logged(folder, log_key) for folder in folders]
    tested = [_tested(folder.results, test_key) for folder in folders]
    # For a single run, the table already shows the test results.
    use_tests = len(folders) > 1 and sum(m is not None for m in tested) > sum(m is not None for m in logged)
    key, found = (test_key, tested) if use_tests else (log_key, logged)
    if key is None or not any(m is not None for m in found):
        return None
    return _draw(BY_TEST if use_tests else IN_TRAINING, found, names)


def _logged(folder: RunFolder, key: str | None) -> Measured | None:
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
    return Measured(points, shown.index(best), _validation(folder), recall, folder.log.validated)


def _validation(folder: RunFolder) -> tuple[object, ...]:
    """Returns the recipe settings that must be the same in two runs for their validations to share a chart."""
    try:
        recipe = tomllib.loads(folder.recipe or "")
    except tomllib.TOMLDecodeError:
        return (id(folder),)
    how = {key: recipe.get("validation", {}).get(key) for key in ("decoding", "limit")}
    pictures, among = recipe.get("data", {}).get("validation"), recipe.get("evaluation", {}).get("lookalike")
    return (json.dumps([pictures, recipe.get("scorer"), how, among], sort_keys=True, default=str),)


def _tested(results: Results | None, key: str | None) -> Measured | None:
    """Returns the results before and after training, or None if one of the metrics is missing in either of them."""
    comparison = compare(results) if results else None
    if results is None or comparison is None or key is None:
        return None
    points = []
    for system in (comparison.before, comparison.after):
        cost, recall = (results.systems.get(system, {}).get(metric) for metric in (COST, key))
        if cost is None or recall is None or math.isnan(cost.value) or math.isnan(recall.value):
            return None
        points.append((system, cost.value, recall.value))
    estimate = results.systems[comparison.after][key]
    test = (test_conditions(results, COST), test_conditions(results, key))
    return Measured(points, 1, test, metric_of(results, key), estimate.n or None)


def _tested_keys(results: Results | None) -> list[str]:
    return [key for system in results.systems.values() for key in system] if results else []


def _draw(measured: str, of_runs: Sequence[Measured | None], names: Sequence[str]) -> TradeOff:
    measurable = [(name, course) for name, course in zip(names, of_runs, strict=True) if course is not None]
    tests = [course.test for _, course in measurable]
    common = max(tests, key=tests.count)
    found = [(name, course) for name, course in measurable if course.test == common]
    left_out = {
        "one of the two metrics is missing": [n for n, course in zip(names, of_runs, strict=True) if course is None],
        "they are not comparable (different pictures or settings)": [n for n, c in measurable if c.test != common],
    }
    metric, n = found[0][1].recall, found[0][1].n
    x_low, x_high = _range([cost for _, course in found for _, cost, _ in course.points])
    y_low, y_high = _range([value for _, course in found for _, _, value in course.points])
    to_x, to_y = TRADE_OFF.x(x_low, x_high), TRADE_OFF.y(y_low, y_high)
    courses = []
    for name, course in found:
        texts = [f"{metric.name} {value_text(value)}, CIDEr {value_text(cost)}" for _, cost, value in course.points]
        spots = [
            Spot(round(to_x(cost), 1), round(to_y(value), 1), f"{name}, {when}: {text}")
            for (when, cost, value), text in zip(course.points, texts, strict=True)
        ]
        kept = course.points[course.kept][0] + (", kept" if measured == IN_TRAINING else "")
        summary = f"from {texts[0]} ({course.points[0][0]}) to {texts[course.kept]} ({kept})"
        courses.append(Course(name, spots, course.kept, summary))
    return TradeOff(
        metric.name,
        measured,
        courses,
        [(round(to_x(tick), 1), value_text(tick)) for tick in nice_ticks(x_low, x_high, 7)],
        [(round(to_y(tick), 1), value_text(tick)) for tick in nice_ticks(y_low, y_high)],
        metric.setting(Interval(n=n) if n is not None else None),
        [f"Not drawn because {why}: {', '.join(runs)}." for why, runs in left_out.items() if runs],
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    margin = 0.08 * (max(values) - min(values)) or abs(values[0]) * 0.1 or 1.0
    return min(values) - margin, max(values) + margin
