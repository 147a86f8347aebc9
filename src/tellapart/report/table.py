"""Builds the table for one run: systems by metric, with intervals and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.shown import ShownMetric, arrange, format_number, metric_of
from tellapart.report.verdict import BeforeAfter, Change, comparisons, order

# Width of the strip that shows intervals; defines its units.
STRIP = 120.0


@dataclass(frozen=True)
class TableCell:
    """One system's value in a row: formatted, with its interval, and with the exact value as hover text."""

    value: str
    interval: str
    exact: str
    n: int | None


@dataclass(frozen=True)
class Whisker:
    """Positions of an interval's start, end and value in the strip, 0..`STRIP`."""

    low: float
    high: float
    value: float


@dataclass(frozen=True)
class TableRow:
    """One metric. ``changes``: the change in each comparison; None if one of the two systems lacks the metric."""

    metric: ShownMetric
    cells: tuple[TableCell | None, ...]
    changes: tuple[Change | None, ...]
    whiskers: tuple[Whisker, ...]
    signature: str
    setting: str


@dataclass(frozen=True)
class ResultsTable:
    """Systems by metric, in groups of rows."""

    systems: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, tuple[TableRow, ...]], ...]


def results_table(results: Results) -> ResultsTable | None:
    """Builds the table for one run; returns None if nothing was measured."""
    systems = order([name for name, found in results.systems.items() if found])
    if not systems:
        return None
    compared = comparisons(results)
    if compared:
        pair = compared[0].before, compared[0].after
        systems = [*pair, *(name for name in systems if name not in pair)]
    metrics = arrange(metric_of(results, key) for name in systems for key in results.systems[name])
    rows = [_row(results, m, systems, compared) for m in metrics]
    groups = dict.fromkeys(m.group for m in metrics)
    return ResultsTable(
        tuple(systems),
        tuple((one.before, one.after) for one in compared),
        tuple((group, tuple(r for r in rows if r.metric.group == group)) for group in groups),
    )


def _row(results: Results, metric: ShownMetric, systems: Sequence[str], compared: Sequence[BeforeAfter]) -> TableRow:
    estimates = [results.systems[name].get(metric.key) for name in systems]
    changes = tuple(one.get(metric.key) for one in compared)
    return TableRow(
        metric,
        tuple(_cell(e, metric.digits) for e in estimates),
        changes,
        _whiskers((changes[0].before, changes[0].after)) if changes and changes[0] else (),
        results.signatures.get(metric.key, ""),
        metric.setting(*estimates),
    )


def _cell(estimate: Interval | None, places: int) -> TableCell | None:
    if estimate is None or math.isnan(estimate.value):
        return None
    interval = ""
    if not (math.isnan(estimate.low) or math.isnan(estimate.high)):
        interval = f"{format_number(estimate.low, places)} to {format_number(estimate.high, places)}"
    return TableCell(format_number(estimate.value, places), interval, repr(estimate.value), estimate.n or None)


def _whiskers(pair: tuple[Interval, Interval]) -> tuple[Whisker, ...]:
    """Places before and after on a common scale. Returns no whiskers if an interval is missing."""
    numbers = [x for e in pair for x in (e.low, e.value, e.high)]
    if any(math.isnan(x) for x in numbers):
        return ()
    lowest, highest = min(numbers), max(numbers)
    span = (highest - lowest) or 1.0

    def place(x: float) -> float:
        return round(4 + (STRIP - 8) * (x - lowest) / span, 1)

    return tuple(Whisker(place(e.low), place(e.high), place(e.value)) for e in pair)
