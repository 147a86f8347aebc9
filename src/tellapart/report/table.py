"""Builds the table for one run. It shows each system's metrics, with intervals and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.plot import scale
from tellapart.report.shown_metric import ShownMetric, arrange, metric_of
from tellapart.report.verdict import (
    BeforeAfter,
    Change,
    comparisons,
    order,
)

# Width of the strip that shows intervals, in the strip's own units.
STRIP = 120.0


@dataclass(frozen=True)
class TableRow:
    """A metric's row in the table.

    estimates: one for each system, None if the system lacks the metric.
    changes: one for each comparison, None if one of its systems lacks the metric.
    """

    metric: ShownMetric
    estimates: list[Interval | None]
    changes: list[Change | None]
    signature: str
    setting: str

    @property
    def strip(self) -> list[list[float]]:
        """Returns [value, low, high] for both systems of the first comparison, on a common scale from 0 to `STRIP`.

        The list is empty if an interval is missing.
        """
        if not self.changes or self.changes[0] is None:
            return []
        pair = [(e.value, e.low, e.high) for e in (self.changes[0].before, self.changes[0].after)]
        numbers = [x for estimate in pair for x in estimate]
        if any(map(math.isnan, numbers)):
            return []
        place = scale(min(numbers), max(numbers), 4, STRIP - 4)
        return [[round(place(x), 1) for x in estimate] for estimate in pair]


@dataclass(frozen=True)
class ResultsTable:
    """A table with one column per system and one row per metric, in groups of rows."""

    systems: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, tuple[TableRow, ...]], ...]


def results_table(results: Results) -> ResultsTable | None:
    """Builds the table for one run. Returns None if nothing was measured."""
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
    changes = [one.get(metric.key) for one in compared]
    signature = results.signatures.get(metric.key, "")
    return TableRow(metric, estimates, changes, signature, metric.setting(*estimates))
