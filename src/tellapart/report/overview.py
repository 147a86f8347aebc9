"""Compares several runs in a table, and writes a sentence that says which run has the highest final value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.comparable import differences, test_conditions
from tellapart.report.folder import RunFolder
from tellapart.report.number_text import format_number, listed
from tellapart.report.shown_metric import ShownMetric, arrange, describe, metric_of
from tellapart.report.verdict import BeforeAfter, Change, compare, main_metric, order

_OVERVIEW_METRICS = 6


# A run's value, its change, and whether it cannot be compared with most other values in its column.
Cell = tuple[Interval | None, Change | None, bool]


@dataclass(frozen=True)
class OverviewRow:
    """A run's row in the table. ``cells`` contains the final value of each metric and how it changed."""

    name: str
    anchor: str
    created: str
    seed: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Overview:
    """The comparison of several runs.

    settings: the text below each metric's name.
    unlike: lines that say which cells are not comparable, and why.
    """

    metrics: tuple[ShownMetric, ...]
    settings: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    unlike: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Run:
    """A run and the values of its final system, which is ``after`` or else the first system that is not a reference."""

    name: str
    folder: RunFolder
    results: Results
    comparison: BeforeAfter | None
    values: dict[str, Interval]


def _runs(folders: Sequence[RunFolder]) -> list[_Run]:
    runs = []
    for folder, name in zip(folders, unique_names(folders), strict=True):
        results = folder.results or Results([])
        comparison = compare(results)
        system = comparison.after if comparison else next(iter(order(list(results.systems))), "")
        values = {key: one for key, one in results.systems.get(system, {}).items() if not math.isnan(one.value)}
        runs.append(_Run(name, folder, results, comparison, values))
    return runs


def _comparable(runs: Iterable[_Run], key: str) -> list[list[_Run]]:
    """Groups the runs that have a value for this metric, so that values in the same group are comparable. Returns the
    largest group first.
    """
    groups: dict[tuple[object, ...], list[_Run]] = {}
    for run in runs:
        if key in run.values:
            groups.setdefault(test_conditions(run.results, key), []).append(run)
    return sorted(groups.values(), key=len, reverse=True)


def overview(folders: Sequence[RunFolder]) -> Overview:
    """Builds the table for several runs. Its columns are the metrics that most runs have in common."""
    runs = _runs(folders)
    metrics = arrange(metric_of(run.results, key) for run in runs for key in run.values)
    metrics = sorted(metrics, key=lambda metric: -sum(metric.key in run.values for run in runs))[:_OVERVIEW_METRICS]
    shown, settings, columns, unlike = [], [], [], []
    for key in (metric.key for metric in metrics):
        best, *others = _comparable(runs, key)
        outside = [run for group in others for run in group]
        metric = _described(best, key)
        shown.append(metric)
        settings.append(metric.setting(*(run.values[key] for run in best)))
        columns.append([_cell(run, key, run in outside) for run in runs])
        unlike += [
            f"{metric.name}: “{run.name}” vs. “{best[0].name}”, which differ in "
            f"{', '.join(differences(best[0].results, run.results, key))}"
            for run in outside
        ]
    rows = [
        OverviewRow(
            run.name,
            f"run{number}",
            run.folder.info.created[:10],
            "" if run.folder.info.seed is None else str(run.folder.info.seed),
            tuple(column[number - 1] for column in columns),
        )
        for number, run in enumerate(runs, 1)
    ]
    return Overview(tuple(shown), tuple(settings), tuple(rows), tuple(dict.fromkeys(unlike)))


def _cell(run: _Run, key: str, unlike: bool) -> Cell:
    value = run.values.get(key)
    return value, run.comparison.get(key) if run.comparison and value else None, unlike


def _described(runs: Sequence[_Run], key: str) -> ShownMetric:
    """Describes a metric with the information from the first run that describes it."""
    candidates = (run.results.candidates.get(key) for run in runs)
    infos = (run.results.metrics.get(key) for run in runs)
    return describe(key, next(filter(None, candidates), None), next(filter(None, infos), None))


def unique_names(folders: Sequence[RunFolder]) -> list[str]:
    """Returns the runs' names. If several runs have the same name, adds their folders."""
    names = [folder.name for folder in folders]
    return [f"{folder.name} ({folder.path})" if names.count(folder.name) > 1 else folder.name for folder in folders]


def overview_headline(folders: Sequence[RunFolder]) -> str:
    """Returns one sentence that says which run has the highest final value of the headline's metric, and whether the
    difference is clear.

    Ranks only runs with the same pictures and signature. For the other runs, says that they are not comparable.
    """
    runs = _runs(folders)
    keys = dict.fromkeys(key for run in runs for key in run.values)
    key = main_metric([key for key in keys if sum(key in run.values for run in runs) > 1])
    if key is None:
        return f"{len(folders)} runs side by side; they have no recall metric in common by which to compare them."
    ranked, *others = _comparable(runs, key)
    outside = [run for group in others for run in group]
    if len(ranked) == 1:
        first, other = ranked[0], outside[0]
        name = describe(key, info=first.results.metrics.get(key)).name
        if (among := first.results.candidates.get(key)) is not None:  # their number may differ between runs
            name = name.replace(f"{among} ", "", 1)
        reasons = ", ".join(differences(first.results, other.results, key))
        return f"{name}, not comparable: “{first.name}” and “{other.name}” differ in {reasons}."
    ranking = _ranking(_described(ranked, key), ranked)
    names = listed([f"“{run.name}”" for run in outside])
    return ranking + (f"; not comparable with these: {names}." if outside else ".")


def _ranking(metric: ShownMetric, runs: Sequence[_Run]) -> str:
    best, second, *_ = sorted(runs, key=lambda run: -run.values[metric.key].value)
    first, other = (format_number(run.values[metric.key].value, metric.digits) for run in (best, second))
    start = f"Of {len(runs)} runs, “{best.name}”"
    if first == other:
        return f"{start} and “{second.name}” are equal: {metric.name} {first}"
    overlap = _overlap(best.values[metric.key], second.values[metric.key])
    return f"{start} has the highest {metric.name}: {first} vs. {other} for “{second.name}”{overlap}"


def _overlap(best: Interval, second: Interval) -> str:
    if math.isnan(best.low) or math.isnan(second.high):
        return ", without intervals to compare"
    return "" if best.low > second.high else ", though their intervals overlap"
