"""Builds the table for one run. It shows each system's metrics, with intervals and differences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.plot import scale
from tellapart.report.shown_metric import ShownMetric, arrange, metric_of
from tellapart.report.system_comparison import Change, comparisons, order

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

    @property
    def strip(self) -> list[list[float]]:
        """Returns [value, low, high] for both systems of the first comparison, on a common scale from 0 to `STRIP`.

        The list is empty if an interval is missing.
        """
        first = next(iter(self.changes), None)
        pair = [[e.value, e.low, e.high] for e in (first.before, first.after)] if first else []
        numbers = [x for estimate in pair for x in estimate]
        if not pair or any(map(math.isnan, numbers)):
            return []
        place = scale(min(numbers), max(numbers), 4, STRIP - 4)
        return [[round(place(x), 1) for x in estimate] for estimate in pair]


@dataclass(frozen=True)
class ResultsTable:
    """A table with one column per system and one row per metric, in groups of rows."""

    systems: list[str]
    compared: list[tuple[str, str]]
    groups: list[tuple[str, list[TableRow]]]


def results_table(results: Results) -> ResultsTable | None:
    """Builds the table for one run. Returns None if nothing was measured."""
    systems = order([name for name, found in results.systems.items() if found])
    if not systems:
        return None
    compared = comparisons(results)
    pairs = [(one.before, one.after) for one in compared]
    systems = list(dict.fromkeys([*(pairs[0] if pairs else ()), *systems]))
    metrics = arrange(metric_of(results, key) for name in systems for key in results.systems[name])
    rows = [
        TableRow(
            metric,
            [results.systems[name].get(metric.key) for name in systems],
            [one.get(metric.key) for one in compared],
            results.signatures.get(metric.key, ""),
        )
        for metric in metrics
    ]
    groups = groupby(rows, lambda row: row.metric.group)
    return ResultsTable(systems, pairs, [(group, list(own)) for group, own in groups])
