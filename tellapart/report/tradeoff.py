"""What telling apart costs: R@1 against CIDEr over the course of training, a line for each run (paper 2, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.report.curves import nice_ticks, scale, value_text
from tellapart.report.folder import Results, RunFolder
from tellapart.report.verdict import compare, main_metric
from tellapart.report.words import describe

WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 52, 22, 18, 46
LOOKS = 6  # colours in the style sheet; further runs begin anew
POINTS = 60  # of a line; more validations are thinned
COST = "cider"
IN_TRAINING = "on the validation pictures, in the course of training"
BY_TEST = "on the test pictures, at the start and at the end"


@dataclass(frozen=True)
class Spot:
    """A validation, or a test, of a run: where it lies, and what a reader is told of it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Course:
    """A run's way from its first measurement to its last; ``number`` stands at its end and in the legend."""

    number: int
    look: int
    name: str
    line: str
    spots: tuple[Spot, ...]
    said: str


@dataclass(frozen=True)
class TradeOff:
    """All that the template needs to draw the picture; coordinates in the view box ``WIDTH``×``HEIGHT``."""

    recall: str
    measured: str
    courses: tuple[Course, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    summary: str
    left_out: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


Measured = list[tuple[str, float, float]]  # when, CIDEr, recall in per cent


def trade_off(folders: Sequence[RunFolder], names: Sequence[str]) -> TradeOff | None:
    """The picture of those runs that measured both; None where none did twice.

    Of the validation logs where every run that can be drawn has logged both; else of the tests before and after, for
    values on different pictures do not belong into one picture.
    """
    log_key = main_metric([key for folder in folders for key in folder.log.validation])
    test_key = main_metric([key for folder in folders for key in _tested_keys(folder.results)])
    logged = [_logged(folder, log_key) for folder in folders]
    tested = [_tested(folder.results, test_key) for folder in folders]
    use_tests = len(folders) > 1 and sum(map(bool, tested)) > sum(map(bool, logged))  # one run's are in its table
    key, found = (test_key, tested) if use_tests else (log_key, logged)
    if key is None or not any(found):
        return None
    return _draw(key, BY_TEST if use_tests else IN_TRAINING, found, names)


def _logged(folder: RunFolder, key: str | None) -> Measured:
    """The steps whose validation has both; at least two."""
    costs, recalls = folder.log.validation.get(COST, {}), folder.log.validation.get(key or "", {})
    steps = sorted(costs.keys() & recalls.keys())
    if len(steps) < 2:
        return []
    every = -(-len(steps) // POINTS)
    kept = sorted({*steps[::every], steps[-1]})
    return [(f"step {step:,}", costs[step], recalls[step]) for step in kept]


def _tested(results: Results | None, key: str | None) -> Measured:
    """Before and after, where both were measured for both."""
    comparison = compare(results) if results else None
    if results is None or comparison is None:
        return []
    found: Measured = []
    for system in (comparison.before, comparison.after):
        cost, recall = (results.systems.get(system, {}).get(metric) for metric in (COST, key or ""))
        if cost is None or recall is None or cost.value is None or recall.value is None:
            return []
        found.append((system, cost.value, recall.value))
    return found


def _tested_keys(results: Results | None) -> list[str]:
    return [key for system in results.systems.values() for key in system] if results else []


def _draw(key: str, measured: str, of_runs: Sequence[Measured], names: Sequence[str]) -> TradeOff:
    found = [(name, course) for name, course in zip(names, of_runs, strict=True) if course]
    without = [name for name, course in zip(names, of_runs, strict=True) if not course]
    recall = describe(key).name
    x_low, x_high = _range([cost for _, course in found for _, cost, _ in course])
    y_low, y_high = _range([value for _, course in found for _, _, value in course])
    to_x, to_y = scale(x_low, x_high, LEFT, WIDTH - RIGHT), scale(y_low, y_high, HEIGHT - BOTTOM, TOP)
    courses = []
    for i, (name, course) in enumerate(found):
        spots = tuple(
            Spot(round(to_x(cost), 1), round(to_y(value), 1), f"{name}, {when}: {_both(recall, value, cost)}")
            for when, cost, value in course
        )
        line = "M" + "L".join(f"{spot.x} {spot.y}" for spot in spots)
        (first, *start), (last, *end) = course[0], course[-1]
        said = f"from {_both(recall, start[1], start[0])} ({first}) to {_both(recall, end[1], end[0])} ({last})"
        courses.append(Course(i + 1, i % LOOKS, name, line, spots, said))
    left_out = f"Not drawn, for they did not measure both twice: {', '.join(without)}." if without else ""
    return TradeOff(
        recall,
        measured,
        tuple(courses),
        tuple((round(to_x(tick), 1), value_text(tick)) for tick in nice_ticks(x_low, x_high, 7)),
        tuple((round(to_y(tick), 1), value_text(tick)) for tick in nice_ticks(y_low, y_high)),
        f"{recall} against CIDEr. " + " ".join(f"{course.name}: {course.said}." for course in courses),
        left_out,
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    margin = 0.08 * (max(values) - min(values)) or abs(values[0]) * 0.1 or 1.0
    return min(values) - margin, max(values) + margin


def _both(recall: str, value: float, cost: float) -> str:
    return f"{recall} {value_text(value)}, CIDEr {value_text(cost)}"
