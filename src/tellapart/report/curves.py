"""Draws learning curves as SVG that can be read without scripts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tellapart.report.folder import TrainingLog
from tellapart.report.shown import MINUS

POINTS = 120  # maximum number of points in a learning curve; if there are more log lines, they are averaged
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
        """Maps a value in ``low``..``high`` to a horizontal position inside the margins."""
        return scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Callable[[float], float]:
        """Maps a value in ``low``..``high`` to a vertical position inside the margins, from the bottom up."""
        return scale(low, high, self.height - self.bottom, self.top)


def path(spots: Iterable[tuple[float, float]]) -> str:
    """Returns the SVG path through points in the units of the view box."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)


CURVE = PlotFrame(360, 210, left=44, right=10, top=14, bottom=28)


@dataclass(frozen=True)
class Bucket:
    """Neighbouring log lines that are drawn as one point: their mean and range."""

    first: int
    last: int
    mean: float
    low: float
    high: float

    @property
    def step(self) -> float:
        """Returns the point's position on the step axis."""
        return (self.first + self.last) / 2


@dataclass(frozen=True)
class CurvePoint:
    """A point to draw, with its hover text and the strip that responds to the pointer."""

    x: float
    y: float
    left: float
    width: float
    text: str
    anchor: str


@dataclass(frozen=True)
class Chart:
    """Everything that the template needs to draw one curve, in coordinates of the view box `CURVE`."""

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


def thin(series: Mapping[int, float], points: int = POINTS) -> list[Bucket]:
    """Averages a series into at most ``points`` equally large buckets of neighbouring steps."""
    items = sorted(series.items())
    buckets = []
    count = min(points, len(items))
    for i in range(count):
        part = items[i * len(items) // count : (i + 1) * len(items) // count]
        values = [value for _, value in part]
        buckets.append(Bucket(part[0][0], part[-1][0], math.fsum(values) / len(values), min(values), max(values)))
    return buckets


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Returns about ``count`` round values within ``low``..``high``, spaced by 1, 2 or 5 times a power of ten."""
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


def step_text(step: float) -> str:
    """Formats a step for an axis: 800, 1.5k, 20k, 2M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(step) >= unit:
            return f"{step / unit:g}{letter}"
    return f"{step:g}"


def draw_curve(key: str, title: str, series: Mapping[int, float], best_step: int | None = None) -> Chart:
    """Draws the curve of one logged value, and marks the selected checkpoint ``best_step``. ``series`` must not be
    empty.
    """
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
        note=f"{len(series):,} values averaged to {len(buckets)} points; the pale band shows their range"
        if thinned
        else "",
        dots=len(buckets) <= 40,
    )


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Returns the linear map of ``low``..``high`` to ``start``..``end``; a single value maps to the middle."""
    span = (high - low) or 1.0
    middle = 0.0 if high > low else 0.5
    return lambda value: start + (end - start) * ((value - low) / span + middle)


def _value_range(buckets: Sequence[Bucket]) -> tuple[float, float]:
    """Returns the range of the means plus a margin; single spikes may exceed the frame, so that they do not flatten the
    curve.
    """
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
        text += f"; the selected checkpoint, step {best_step:,}, has {value_text(series[best_step])}"
    return text + "."


def charts(log: TrainingLog) -> tuple[list[Chart], list[Chart]]:
    """Returns the main curves (loss, reward, and validation R@1, or else validation loss), and all others."""
    recalls = sorted((key for key in log.validation if key.startswith("recall@1")), key=lambda key: key.count("random"))
    leading = recalls[:1] or [key for key in ("loss",) if key in log.validation]
    first = [draw_curve(key, key.capitalize(), log.training[key]) for key in _FIRST if key in log.training]
    first += [_validation_chart(log, key) for key in leading]
    rest = [draw_curve(key, key, series) for key, series in log.training.items() if key not in _FIRST]
    rest += [_validation_chart(log, key) for key in log.validation if key not in leading]
    return first, rest


def _validation_chart(log: TrainingLog, key: str) -> Chart:
    name = "R@1" if key == "recall@1" else log.labels.get(key, key)
    return draw_curve(f"validation {key}", f"Validation {name}", log.validation[key], log.best_step)
