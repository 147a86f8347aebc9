"""Compares several runs: a table, and a sentence that says which run has the highest final value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import Results
from tellapart.report.comparable import classes, differences
from tellapart.report.folder import RunFolder
from tellapart.report.shown import ShownMetric, arrange, describe, format_number, metric_of
from tellapart.report.verdict import Change, compare, main_metric, order

_OVERVIEW_METRICS = 6


# A run's value, its change, and whether it is not comparable with most others in its column.
Cell = tuple[Interval | None, Change | None, bool]


@dataclass(frozen=True)
class OverviewRow:
    """One run in the table: its final values and their changes, metric by metric."""

    name: str
    anchor: str
    created: str
    seed: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Overview:
    """The comparison of several runs.

    ``settings``: the text below each metric's name. ``unlike``: lines that say which cells are not comparable, and why.
    """

    metrics: tuple[ShownMetric, ...]
    settings: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    unlike: tuple[str, ...]


def overview(folders: Sequence[RunFolder]) -> Overview:
    """Builds the table for several runs: first the headline's metric, then the metrics that most runs have in
    common.
    """
    endings = [_ending(folder.results) for folder in folders]
    metrics = arrange(
        metric_of(_results(folder), key) for folder, keys in zip(folders, endings, strict=True) for key in keys
    )
    wanted = sorted(metrics, key=lambda m: -sum(m.key in ending for ending in endings))[:_OVERVIEW_METRICS]
    names = unique_names(folders)
    columns = [_column(folders, names, endings, metric) for metric in wanted]
    rows = [
        OverviewRow(
            names[i],
            f"run{i + 1}",
            folder.info.created[:10],
            "" if folder.info.seed is None else str(folder.info.seed),
            tuple(column.cells[i] for column in columns),
        )
        for i, folder in enumerate(folders)
    ]
    return Overview(
        tuple(column.metric for column in columns),
        tuple(column.metric.setting(*column.estimates) for column in columns),
        tuple(rows),
        tuple(dict.fromkeys(line for column in columns for line in column.unlike)),
    )


@dataclass(frozen=True)
class _Column:
    metric: ShownMetric
    estimates: tuple[Interval | None, ...]
    cells: tuple[Cell, ...]
    unlike: tuple[str, ...]


def _column(
    folders: Sequence[RunFolder], names: Sequence[str], endings: Sequence[dict[str, Interval]], metric: ShownMetric
) -> _Column:
    """Builds the column for one metric; marks runs outside the largest class of comparable runs."""
    with_it = [i for i, ending in enumerate(endings) if metric.key in ending]
    first, *others = comparable(folders, with_it, metric.key)
    named = _described(folders, metric.key, first)
    estimates = tuple(ending.get(metric.key) for ending in endings)
    unlike = tuple(
        (
            f"{named.name}: {quoted(names, [i])} vs. {quoted(names, [first[0]])}, which differ in "
            f"{', '.join(differences(_results(folders[first[0]]), _results(folders[i]), metric.key))}"
        )
        for other in others
        for i in other
    )
    outside = {i for other in others for i in other}
    cells: list[Cell] = []
    for i, folder in enumerate(folders):
        comparison = compare(folder.results) if folder.results else None
        change = comparison.get(metric.key) if comparison and estimates[i] else None
        cells.append((estimates[i], change, i in outside))
    return _Column(named, tuple(estimates[i] for i in first), tuple(cells), unlike)


def comparable(folders: Sequence[RunFolder], places: Sequence[int], key: str) -> list[list[int]]:
    """Groups runs, given by the indices ``places``, into classes within which this metric is comparable,
    largest first.
    """
    found = classes([_results(folders[place]) for place in places], key)
    return [[places[own] for own in members] for members in found]


def _results(folder: RunFolder) -> Results:
    return folder.results or Results([])


def _described(folders: Sequence[RunFolder], key: str, members: Sequence[int]) -> ShownMetric:
    found = [_results(folders[i]) for i in members]
    candidates = next(filter(None, (one.candidates.get(key) for one in found)), None)
    return describe(key, candidates, next(filter(None, (one.metrics.get(key) for one in found)), None))


def _ending(results: Results | None) -> dict[str, Interval]:
    """Returns the values for a run's final system: ``after``, or the first one that is not a reference system."""
    if results is None:
        return {}
    comparison = compare(results)
    name = comparison.after if comparison else next(iter(order(list(results.systems))), None)
    found = results.systems.get(name, {}) if name else {}
    return {key: e for key, e in found.items() if not math.isnan(e.value)}


def unique_names(folders: Sequence[RunFolder]) -> list[str]:
    """Returns the runs' names, with the folder if several runs have the same name."""
    names = [folder.name for folder in folders]
    paths = [f" ({folder.path})" if names.count(folder.name) > 1 else "" for folder in folders]
    return [name + path for name, path in zip(names, paths, strict=True)]


def quoted(names: Sequence[str], places: Sequence[int]) -> str:
    """Quotes and joins names, e.g. ``“a”, “b” and “c”``."""
    own = [f"“{names[place]}”" for place in places]
    return " and ".join([", ".join(own[:-1]), own[-1]] if len(own) > 1 else own)


def overview_headline(folders: Sequence[RunFolder]) -> str:
    """Returns one sentence: which run has the highest final value of the headline's metric, and whether the difference
    is clear.

    Ranks only runs with the same pictures and signature; for the others, says what differs.
    """
    endings = [_ending(folder.results) for folder in folders]
    names = unique_names(folders)
    shared = [key for key in dict.fromkeys(k for e in endings for k in e) if sum(key in e for e in endings) > 1]
    key = main_metric(shared)
    if key is None:
        return f"{len(folders)} runs side by side; they have no recall metric in common by which to compare them."
    ranked, *others = comparable(folders, [i for i, e in enumerate(endings) if key in e], key)
    outside = [i for other in others for i in other]
    if len(ranked) == 1:
        first, other = (_results(folders[place]) for place in (ranked[0], outside[0]))
        name = describe(key, info=first.metrics.get(key)).name
        if (among := first.candidates.get(key)) is not None:  # the number of candidates may differ between runs
            name = name.replace(f"{among} ", "", 1)
        pair = quoted(names, [ranked[0], outside[0]])
        return f"{name}, not comparable: {pair} differ in {', '.join(differences(first, other, key))}."
    metric = _described(folders, key, ranked)
    ranking = _ranking(metric, {i: endings[i][key] for i in ranked}, names)
    return ranking + (f"; not comparable with these: {quoted(names, outside)}." if outside else ".")


def _ranking(metric: ShownMetric, estimates: dict[int, Interval], names: Sequence[str]) -> str:
    ranked = sorted(estimates, key=lambda i: -estimates[i].value)
    best, second = (estimates[i] for i in ranked[:2])
    first, other = format_number(best.value, metric.digits), format_number(second.value, metric.digits)
    start = f"Of {len(ranked)} runs, “{names[ranked[0]]}”"
    if first == other:
        return f"{start} and “{names[ranked[1]]}” are equal: {metric.name} {first}"
    return (
        f"{start} has the highest {metric.name}: {first} vs. {other} for “{names[ranked[1]]}”{_overlap(best, second)}"
    )


def _overlap(best: Interval, second: Interval) -> str:
    if math.isnan(best.low) or math.isnan(second.high):
        return ", without intervals to compare"
    return "" if best.low > second.high else ", though their intervals overlap"
