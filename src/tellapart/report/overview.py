"""Compares several runs in a table, and writes a sentence that says which run has the highest final value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.comparable import differences, measuring_conditions
from tellapart.report.folder import RunFolder
from tellapart.report.number_text import format_number, listed
from tellapart.report.shown_metric import ShownMetric, arrange, describe, metric_of
from tellapart.report.system_comparison import BeforeAfter, Change, compare, main_metric, order

_OVERVIEW_METRICS = 6


@dataclass(frozen=True)
class OverviewColumn:
    """A metric's column in the table.

    setting: the text below the metric's name.
    cells: each run's final value, its change, and whether it cannot be compared with most other values.
    unlike: lines that say which cells are not comparable, and why.
    """

    metric: ShownMetric
    setting: str
    cells: list[tuple[Interval | None, Change | None, bool]]
    unlike: list[str]


@dataclass(frozen=True, eq=False)
class _Run:
    """A run and the values of its final system, which is ``after`` or else the first system that is not a reference."""

    name: str
    results: Results
    comparison: BeforeAfter | None
    values: dict[str, Interval]


def overview(folders: Sequence[RunFolder], names: Sequence[str]) -> tuple[str, list[OverviewColumn]]:
    """Returns a sentence that says which run has the highest final value of the headline's metric, and the columns of
    the table: the metrics that most runs have in common. ``names``: the runs' names, from `unique_names`.
    """
    runs = []
    for folder, name in zip(folders, names, strict=True):
        results = folder.results or Results([])
        comparison = compare(results)
        system = comparison.after if comparison else next(iter(order(list(results.systems))), "")
        values = {key: one for key, one in results.systems.get(system, {}).items() if not math.isnan(one.value)}
        runs.append(_Run(name, results, comparison, values))
    metrics = arrange(metric_of(run.results, key) for run in runs for key in run.values)
    metrics.sort(key=lambda metric: -sum(metric.key in run.values for run in runs))
    return _title(runs), [_column(runs, metric.key) for metric in metrics[:_OVERVIEW_METRICS]]


def unique_names(folders: Sequence[RunFolder]) -> list[str]:
    """Returns the runs' names. If several runs have the same name, adds their folders."""
    names = [folder.name for folder in folders]
    return [f"{folder.name} ({folder.path})" if names.count(folder.name) > 1 else folder.name for folder in folders]


def _comparable(runs: Sequence[_Run], key: str) -> tuple[list[_Run], list[_Run]]:
    """Returns the largest group of runs whose values of a metric are comparable, and the other runs with a value."""
    groups: dict[tuple[object, ...], list[_Run]] = {}
    for run in runs:
        if key in run.values:
            groups.setdefault(measuring_conditions(run.results, key), []).append(run)
    largest, *others = sorted(groups.values(), key=len, reverse=True)
    return largest, [run for group in others for run in group]


def _column(runs: Sequence[_Run], key: str) -> OverviewColumn:
    best, outside = _comparable(runs, key)
    metric = _described(best, key)
    cells = [
        (value, run.comparison.get(key) if run.comparison and value else None, run in outside)
        for run in runs
        for value in [run.values.get(key)]
    ]
    unlike = [
        f"{metric.name}: “{run.name}” vs. “{best[0].name}”, which differ in "
        f"{', '.join(differences(best[0].results, run.results, key))}"
        for run in outside
    ]
    return OverviewColumn(metric, metric.setting(*(run.values[key] for run in best)), cells, unlike)


def _described(runs: Sequence[_Run], key: str) -> ShownMetric:
    """Describes a metric with the information from the first run that describes it."""
    candidates = (run.results.candidates.get(key) for run in runs)
    infos = (run.results.metrics.get(key) for run in runs)
    return describe(key, next(filter(None, candidates), None), next(filter(None, infos), None))


def _title(runs: Sequence[_Run]) -> str:
    """Says which run has the highest final value of the headline's metric, and whether the difference is clear.

    Ranks only runs with the same pictures and signature. For the other runs, says that they are not comparable.
    """
    keys = dict.fromkeys(key for run in runs for key in run.values)
    key = main_metric([key for key in keys if sum(key in run.values for run in runs) > 1])
    if key is None:
        return f"{len(runs)} runs side by side; they have no recall metric in common by which to compare them."
    ranked, outside = _comparable(runs, key)
    if len(ranked) == 1:
        first, other = ranked[0], outside[0]
        name = describe(key, info=first.results.metrics.get(key)).name
        if (among := first.results.candidates.get(key)) is not None:  # their number may differ between runs
            name = name.replace(f"{among} ", "", 1)
        reasons = ", ".join(differences(first.results, other.results, key))
        return f"{name}, not comparable: “{first.name}” and “{other.name}” differ in {reasons}."
    names = listed([f"“{run.name}”" for run in outside])
    return _ranking(_described(ranked, key), ranked) + (f"; not comparable with these: {names}." if outside else ".")


def _ranking(metric: ShownMetric, runs: Sequence[_Run]) -> str:
    best, second, *_ = sorted(runs, key=lambda run: -run.values[metric.key].value)
    high, low = (run.values[metric.key] for run in (best, second))
    first, other = (format_number(x.value, metric.digits) for x in (high, low))
    start = f"Of {len(runs)} runs, “{best.name}”"
    if first == other:
        return f"{start} and “{second.name}” are equal: {metric.name} {first}"
    if math.isnan(high.low) or math.isnan(low.high):
        overlap = ", without intervals to compare"
    else:
        overlap = "" if high.low > low.high else ", though their intervals overlap"
    return f"{start} has the highest {metric.name}: {first} vs. {other} for “{second.name}”{overlap}"
