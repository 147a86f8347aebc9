"""Learning curves as plain numbers for an inline SVG: thinned points, paths, ticks. The template only draws.

What telling apart costs: R@1 against CIDEr over the course of training, a line for each run (paper 2, figure 3).
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tellapart.metrics.results import Results
from tellapart.metrics.statistics import Interval
from tellapart.report.comparable import test_conditions
from tellapart.report.folder import RunFolder, TrainingLog
from tellapart.report.shown import MINUS, ShownMetric, metric_of
from tellapart.report.verdict import compare, main_metric

POINTS = 120  # of a learning curve; more log lines are averaged
_FIRST = ("loss", "reward")


@dataclass(frozen=True)
class PlotFrame:
    """The view box of a plot, ``width``×``height``, with its margins."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    def x(self, low: float, high: float) -> Callable[[float], float]:
        """Maps ``low``..``high`` to the width inside the margins."""
        return scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Callable[[float], float]:
        """Maps ``low``..``high`` to the height inside the margins, from the bottom up."""
        return scale(low, high, self.height - self.bottom, self.top)


def path(spots: Iterable[tuple[float, float]]) -> str:
    """Returns the SVG path through points in the units of the view box."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)


CURVE = PlotFrame(360, 210, left=44, right=10, top=14, bottom=28)
TRADE_OFF = PlotFrame(620, 380, left=52, right=22, top=18, bottom=46)


@dataclass(frozen=True)
class Bucket:
    """Neighbouring log lines drawn as one point: their mean, and the range that they span."""

    first: int
    last: int
    mean: float
    low: float
    high: float

    @property
    def step(self) -> float:
        """Returns where the point stands on the step axis."""
        return (self.first + self.last) / 2


@dataclass(frozen=True)
class CurvePoint:
    """A drawn point with its hover text and the strip that catches the pointer."""

    x: float
    y: float
    left: float
    width: float
    text: str
    anchor: str


@dataclass(frozen=True)
class Chart:
    """All that the template needs to draw one curve; coordinates in the view box `CURVE`."""

    key: str
    title: str
    line: str
    band: str
    points: tuple[CurvePoint, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    best: CurvePoint | None
    summary: str
    note: str
    dots: bool


def draw_token_losses(title: str, losses: Sequence[tuple[str, float, float, str, float]]) -> str:
    """Draws an SVG of the loss of each token under MLE and SMILE, side by side, with the likeliest token below it.

    losses: as `tellapart.evaluation.word_values.token_losses` gives them.
    """
    step, height, left, top = 74, 180, 44, 44
    highest = max([1e-9, *(max(mle, smile) for _, mle, smile, _, _ in losses)])
    width, bottom = left + step * len(losses) + 12, top + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 64}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="#fff"/><title>{escape(title)}</title>',
        f'<text x="{left}" y="16" font-size="13">{escape(title)}</text>',
    ]
    for place, (name, colour) in enumerate(LOSS_COLOURS.items()):
        parts.append(f'<rect x="{left + 90 * place}" y="24" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 14 + 90 * place}" y="33">{name}, nats</text>')
    for tick in nice_ticks(0, highest, 4):
        y = bottom - height * tick / highest
        parts.append(f'<path d="M{left} {y:.1f}H{width - 12}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value_text(tick)}</text>')
    for place, (word, mle, smile, likeliest, p) in enumerate(losses):
        x = left + step * place + 10
        for shift, loss, colour in zip((0, 24), (mle, smile), LOSS_COLOURS.values(), strict=True):
            tall = height * loss / highest
            parts.append(
                f'<rect x="{x + shift}" y="{bottom - tall:.1f}" width="22" height="{tall:.1f}" fill="{colour}">'
                f"<title>{loss:.3f} nats</title></rect>"
            )
        below = ((word, "#000"), (likeliest, "#777"), (f"{100 * p:.0f} %", "#777"))
        for row, (text, colour) in enumerate(below, start=1):
            parts.append(
                f'<text x="{x + 23}" y="{bottom + 16 * row}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'
            )
    return "".join([*parts, "</svg>\n"])


LOSS_COLOURS = {"MLE": "#b04a3a", "SMILE": "#2f6f9f"}


def thin(series: Mapping[int, float], points: int = POINTS) -> list[Bucket]:
    """At most ``points`` buckets of neighbouring steps, equally full; each value lies in exactly one."""
    items = sorted(series.items())
    buckets = []
    count = min(points, len(items))
    for i in range(count):
        part = items[i * len(items) // count : (i + 1) * len(items) // count]
        values = [value for _, value in part]
        buckets.append(Bucket(part[0][0], part[-1][0], math.fsum(values) / len(values), min(values), max(values)))
    return buckets


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) inside ``low``..``high``, about ``count`` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    gap = power * next(m for m, most in ((1, 1.5), (2, 3.5), (5, 7.5), (10, math.inf)) if raw / power < most)
    first = math.ceil(low / gap - 1e-9)
    return [k * gap for k in range(first, math.floor(high / gap + 1e-9) + 1)]


def value_text(x: float) -> str:
    """Four significant digits; powers of ten where zeros would fill the axis."""
    if x == 0:
        return "0"
    text = f"{abs(x):.4g}" if 1e-3 <= abs(x) < 1e5 else f"{abs(x):.3g}"
    return (MINUS if x < 0 else "") + text


def step_text(step: float) -> str:
    """Steps for an axis: 800, 1.5k, 20k, 2M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(step) >= unit:
            return f"{step / unit:g}{letter}"
    return f"{step:g}"


def draw(key: str, title: str, series: Mapping[int, float], best_step: int | None = None) -> Chart:
    """The chart of one logged number; ``best_step`` marks the kept checkpoint. ``series`` must not be empty."""
    buckets = thin(series)
    to_x = CURVE.x(buckets[0].step, buckets[-1].step)
    low, high = _value_range(buckets)
    to_y = CURVE.y(low, high)
    xs = [to_x(b.step) for b in buckets]
    points = tuple(_point(b, xs[i], to_y(b.mean), *_strip(xs, i)) for i, b in enumerate(buckets))
    thinned = any(b.first != b.last for b in buckets)
    best = None
    if best_step is not None and best_step in series:
        bucket = Bucket(best_step, best_step, *(series[best_step],) * 3)
        best = _point(bucket, to_x(best_step), to_y(series[best_step]), 0, 0)
    return Chart(
        key,
        title,
        line=path((p.x, p.y) for p in points),
        band=_band(buckets, xs, to_y, low, high) if thinned else "",
        points=points,
        x_ticks=tuple((to_x(t), step_text(t)) for t in nice_ticks(buckets[0].step, buckets[-1].step)),
        y_ticks=tuple((to_y(t), value_text(t)) for t in nice_ticks(low, high)),
        best=best,
        summary=_summary(title, series, best_step if best else None),
        note=f"{len(series):,} values drawn as {len(buckets)} means; the pale band is their range" if thinned else "",
        dots=len(buckets) <= 40,
    )


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """``low``..``high`` onto ``start``..``end``; a single value lands in the middle."""
    span = (high - low) or 1.0
    middle = 0.0 if high > low else 0.5
    return lambda value: start + (end - start) * ((value - low) / span + middle)


def _value_range(buckets: Sequence[Bucket]) -> tuple[float, float]:
    """Room for the means and a little more: a single spike may leave the frame, and must not flatten the curve."""
    low, high = min(b.mean for b in buckets), max(b.mean for b in buckets)
    margin = 0.15 * (high - low) or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _strip(xs: Sequence[float], i: int) -> tuple[float, float]:
    left = (xs[i - 1] + xs[i]) / 2 if i else CURVE.left
    right = (xs[i] + xs[i + 1]) / 2 if i + 1 < len(xs) else CURVE.width - CURVE.right
    return left, max(right - left, 0.5)


def _point(bucket: Bucket, x: float, y: float, left: float, width: float) -> CurvePoint:
    if bucket.first == bucket.last:
        text = f"step {bucket.first:,}: {value_text(bucket.mean)}"
    else:
        text = f"steps {bucket.first:,}–{bucket.last:,}: {value_text(bucket.mean)}"
    anchor = "start" if x < CURVE.width / 3 else "end" if x > CURVE.width * 2 / 3 else "middle"
    return CurvePoint(round(x, 1), round(y, 1), round(left, 1), round(width, 1), text, anchor)


def _band(
    buckets: Sequence[Bucket], xs: Sequence[float], to_y: Callable[[float], float], low: float, high: float
) -> str:
    def inside(value: float) -> float:
        return to_y(min(max(value, low), high))

    upper = [(x, inside(b.high)) for b, x in zip(buckets, xs, strict=True)]
    lower = [(x, inside(b.low)) for b, x in zip(buckets, xs, strict=True)]
    return path(upper + lower[::-1]) + "Z"


def _summary(title: str, series: Mapping[int, float], best_step: int | None) -> str:
    first, last = min(series), max(series)
    if first == last:
        return f"{title}: {value_text(series[first])} at step {first:,}, its only value."
    text = f"{title}: {value_text(series[first])} at step {first:,}, {value_text(series[last])} at step {last:,}"
    if best_step is not None:
        text += f"; the kept checkpoint, step {best_step:,}, has {value_text(series[best_step])}"
    return text + "."


def charts(log: TrainingLog) -> tuple[list[Chart], list[Chart]]:
    """The curves worth a first look (loss, reward, validation R@1, or validation loss without it), and all others."""
    recalls = sorted((key for key in log.validation if key.startswith("recall@1")), key=lambda key: key.count("random"))
    leading = recalls[:1] or [key for key in ("loss",) if key in log.validation]
    first = [draw(key, key.capitalize(), log.training[key]) for key in _FIRST if key in log.training]
    first += [_validation_chart(log, key) for key in leading]
    rest = [draw(key, key, series) for key, series in log.training.items() if key not in _FIRST]
    rest += [_validation_chart(log, key) for key in log.validation if key not in leading]
    return first, rest


def _validation_chart(log: TrainingLog, key: str) -> Chart:
    name = "R@1" if key == "recall@1" else log.labels.get(key, key)
    return draw(f"validation {key}", f"Validation {name}", log.validation[key], log.best_step)


LOOKS = 6  # colours in the style sheet; further runs begin anew
VALIDATIONS = 60  # of a line; more validations are thinned
COST = "cider"
IN_TRAINING = "on the validation pictures, in the course of training"
BY_TEST = "on the test pictures, at the start and at the end"


@dataclass(frozen=True)
class Spot:
    """A validation, or a test, of a run: its coordinates and its hover text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Course:
    """A run's way from its first measurement to its last.

    ``number`` stands in the legend and at the kept checkpoint, which is ``spots[kept]``; ``line`` leads there, and
    ``later`` on from it.
    """

    number: int
    look: int
    name: str
    line: str
    later: str
    spots: tuple[Spot, ...]
    kept: int
    summary: str


@dataclass(frozen=True)
class TradeOff:
    """Holds what the template needs to draw the chart; coordinates in the view box of ``frame``."""

    recall: str
    measured: str
    courses: tuple[Course, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    summary: str
    setting: str
    left_out: str
    has_later: bool
    frame: PlotFrame = TRADE_OFF


@dataclass(frozen=True)
class Measured:
    """(when, CIDEr, recall in per cent) in order; ``kept`` is the place of the checkpoint that was kept.

    Courses of equal ``test`` are of the same ``n`` pictures, measured alike.
    """

    points: list[tuple[str, float, float]]
    kept: int
    test: tuple[object, ...]
    recall: ShownMetric
    n: int | None


def trade_off(folders: Sequence[RunFolder], names: Sequence[str]) -> TradeOff | None:
    """The picture of those runs that measured both; None where none did twice.

    Of the validation logs where every run that can be drawn has logged both; else of the tests before and after, for
    values on different pictures do not belong into one picture.
    """
    log_key = main_metric([key for folder in folders for key in folder.log.validation])
    test_key = main_metric([key for folder in folders for key in _tested_keys(folder.results)])
    logged = [_logged(folder, log_key) for folder in folders]
    tested = [_tested(folder.results, test_key) for folder in folders]
    # One run's tests are in its table.
    use_tests = len(folders) > 1 and sum(m is not None for m in tested) > sum(m is not None for m in logged)
    key, found = (test_key, tested) if use_tests else (log_key, logged)
    if key is None or not any(m is not None for m in found):
        return None
    return _draw(BY_TEST if use_tests else IN_TRAINING, found, names)


def _logged(folder: RunFolder, key: str | None) -> Measured | None:
    """The steps whose validation has both; at least two."""
    costs, recalls = folder.log.validation.get(COST, {}), folder.log.validation.get(key or "", {})
    steps = sorted(costs.keys() & recalls.keys())
    if key is None or len(steps) < 2:
        return None
    every = -(-len(steps) // VALIDATIONS)
    best = folder.log.best_step if folder.log.best_step in steps else steps[-1]
    shown = sorted({*steps[::every], steps[-1], best})
    points = [(f"step {step:,}", costs[step], recalls[step]) for step in shown]
    # Candidates are as many as in the test, pictures the validation's own.
    recall = metric_of(folder.results or Results([]), key)
    return Measured(points, shown.index(best), _validation(folder), recall, folder.log.validated)


def _validation(folder: RunFolder) -> tuple[object, ...]:
    """Returns what validations of two runs must share to be drawn in one picture, as their recipes say it."""
    try:
        recipe = tomllib.loads(folder.recipe or "")
    except tomllib.TOMLDecodeError:
        return (id(folder),)
    how = {key: recipe.get("validation", {}).get(key) for key in ("decoding", "limit")}
    pictures, among = recipe.get("data", {}).get("validation"), recipe.get("evaluation", {}).get("lookalike")
    return (json.dumps([pictures, recipe.get("scorer"), how, among], sort_keys=True, default=str),)


def _tested(results: Results | None, key: str | None) -> Measured | None:
    """Before and after, where both were measured for both."""
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
    without = [name for name, course in zip(names, of_runs, strict=True) if course is None]
    tests = [course.test for _, course in measurable]
    common = max(tests, key=tests.count)
    found = [(name, course) for name, course in measurable if course.test == common]
    unlike = [name for name, course in measurable if course.test != common]
    metric, n = found[0][1].recall, found[0][1].n
    recall = metric.name
    x_low, x_high = _range([cost for _, course in found for _, cost, _ in course.points])
    y_low, y_high = _range([value for _, course in found for _, _, value in course.points])
    to_x, to_y = TRADE_OFF.x(x_low, x_high), TRADE_OFF.y(y_low, y_high)
    courses = []
    for i, (name, course) in enumerate(found):
        spots = tuple(
            Spot(round(to_x(cost), 1), round(to_y(value), 1), f"{name}, {when}: {_both(recall, value, cost)}")
            for when, cost, value in course.points
        )
        (first, *start), (kept, *end) = course.points[0], course.points[course.kept]
        kept = f"{kept}, kept" if measured == IN_TRAINING else kept
        summary = f"from {_both(recall, start[1], start[0])} ({first}) to {_both(recall, end[1], end[0])} ({kept})"
        line, later = _path(spots[: course.kept + 1]), _path(spots[course.kept :])
        courses.append(Course(i + 1, i % LOOKS, name, line, later, spots, course.kept, summary))
    left_out = f"Not drawn, for they did not measure both twice: {', '.join(without)}. " if without else ""
    left_out += f"Not comparable, so not drawn: {', '.join(unlike)} (other pictures, or measured otherwise)." * bool(
        unlike
    )
    return TradeOff(
        recall,
        measured,
        tuple(courses),
        tuple((round(to_x(tick), 1), value_text(tick)) for tick in nice_ticks(x_low, x_high, 7)),
        tuple((round(to_y(tick), 1), value_text(tick)) for tick in nice_ticks(y_low, y_high)),
        f"{recall} against CIDEr. " + " ".join(f"{course.name}: {course.summary}." for course in courses),
        metric.setting(Interval(n=n) if n is not None else None),
        left_out.strip(),
        any(course.later for course in courses),
    )


def _path(spots: Sequence[Spot]) -> str:
    """An SVG path through spots; none through a single one."""
    return path((spot.x, spot.y) for spot in spots) if len(spots) > 1 else ""


def _range(values: Sequence[float]) -> tuple[float, float]:
    margin = 0.08 * (max(values) - min(values)) or abs(values[0]) * 0.1 or 1.0
    return min(values) - margin, max(values) + margin


def _both(recall: str, value: float, cost: float) -> str:
    return f"{recall} {value_text(value)}, CIDEr {value_text(cost)}"
