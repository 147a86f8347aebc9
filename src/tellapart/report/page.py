"""Render run folders as one self-contained HTML page: no network, no other files, readable without scripts.

Its tables are systems by metric for one run, and runs by metric for several.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.results import Results
from tellapart.metrics.statistics import Interval
from tellapart.report.comparable import classes, differences
from tellapart.report.curves import CURVE, Chart, charts, trade_off
from tellapart.report.folder import Describe, RunFolder, read_run, unexplained
from tellapart.report.gallery import Album, GalleryView, view_gallery
from tellapart.report.shown import ShownMetric, arrange, describe, metric_of, number
from tellapart.report.verdict import (
    BeforeAfter,
    Change,
    compare,
    comparisons,
    headline,
    main_metric,
    order,
    statistics,
)
from tellapart.utils.files import check_output, write_output

# The strip that shows intervals, in its own units.
STRIP = 120.0
_OVERVIEW_METRICS = 6
KEPT_START = "Validation kept step 0, so the saved model has the weights that training started from."


@dataclass(frozen=True)
class TableCell:
    """One system's number in a row: formatted, its interval, and the exact value for the hover."""

    value: str
    interval: str
    exact: str
    n: int | None


@dataclass(frozen=True)
class Whisker:
    """An interval in the strip: where it starts, ends, and where its value lies, 0..`STRIP`."""

    low: float
    high: float
    value: float


@dataclass(frozen=True)
class TableRow:
    """One metric. ``changes``: of each comparison, None where one of the two systems lacks the metric."""

    metric: ShownMetric
    cells: tuple[TableCell | None, ...]
    changes: tuple[Change | None, ...]
    whiskers: tuple[Whisker, ...]
    signature: str
    setting: str


@dataclass(frozen=True)
class ResultsTable:
    """The systems by metric, as groups of rows."""

    systems: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    groups: tuple[tuple[str, tuple[TableRow, ...]], ...]


def table(results: Results) -> ResultsTable | None:
    """The table of one run, or None where nothing was measured."""
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
        interval = f"{number(estimate.low, places)} to {number(estimate.high, places)}"
    return TableCell(number(estimate.value, places), interval, repr(estimate.value), estimate.n or None)


def _whiskers(pair: tuple[Interval, Interval]) -> tuple[Whisker, ...]:
    """Before and after on one scale of their own; nothing where an interval is missing."""
    numbers = [x for e in pair for x in (e.low, e.value, e.high)]
    if any(math.isnan(x) for x in numbers):
        return ()
    lowest, highest = min(numbers), max(numbers)
    span = (highest - lowest) or 1.0

    def place(x: float) -> float:
        return round(4 + (STRIP - 8) * (x - lowest) / span, 1)

    return tuple(Whisker(place(e.low), place(e.high), place(e.value)) for e in pair)


@dataclass(frozen=True)
class OverviewCell:
    """One run's value of a metric. ``unlike``: it cannot be compared with most others of its column."""

    value: str
    change: str = ""
    verdict: str = ""
    unlike: bool = False


@dataclass(frozen=True)
class OverviewRow:
    """One run in the table of several: what it ended with, and its change, metric by metric."""

    name: str
    anchor: str
    created: str
    seed: str
    cells: tuple[OverviewCell, ...]


@dataclass(frozen=True)
class Overview:
    """The comparison of several runs.

    ``settings`` stand below the metrics' names; ``unlike`` says which cells cannot be compared, and why.
    """

    metrics: tuple[ShownMetric, ...]
    settings: tuple[str, ...]
    rows: tuple[OverviewRow, ...]
    unlike: tuple[str, ...]


def overview(folders: Sequence[RunFolder]) -> Overview:
    """The table of several runs: the headline's metric, then those that most runs share."""
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
    cells: tuple[OverviewCell, ...]
    unlike: tuple[str, ...]


def _column(
    folders: Sequence[RunFolder], names: Sequence[str], endings: Sequence[dict[str, Interval]], metric: ShownMetric
) -> _Column:
    """One metric of all runs; those outside the largest class of comparable ones are marked."""
    with_it = [i for i, ending in enumerate(endings) if metric.key in ending]
    first, *others = comparable(folders, with_it, metric.key)
    named = _described(folders, metric.key, first)
    estimates = tuple(ending.get(metric.key) for ending in endings)
    unlike = tuple(
        f"{named.name}: {quoted(names, [i])} against {quoted(names, [first[0]])}, which differ in "
        f"{', '.join(differences(_results(folders[first[0]]), _results(folders[i]), metric.key))}"
        for other in others
        for i in other
    )
    outside = {i for other in others for i in other}
    cells = []
    for i, folder in enumerate(folders):
        comparison = compare(folder.results) if folder.results else None
        cells.append(_overview_cell(estimates[i], comparison, metric, i in outside))
    return _Column(named, tuple(estimates[i] for i in first), tuple(cells), unlike)


def comparable(folders: Sequence[RunFolder], places: Sequence[int], key: str) -> list[list[int]]:
    """``places`` of runs, in classes within which this metric can be ranked, the largest first."""
    found = classes([_results(folders[place]) for place in places], key)
    return [[places[own] for own in members] for members in found]


def _results(folder: RunFolder) -> Results:
    return folder.results or Results([])


def _described(folders: Sequence[RunFolder], key: str, members: Sequence[int]) -> ShownMetric:
    found = [_results(folders[i]) for i in members]
    candidates = next(filter(None, (one.candidates.get(key) for one in found)), None)
    return describe(key, candidates, next(filter(None, (one.metrics.get(key) for one in found)), None))


def _ending(results: Results | None) -> dict[str, Interval]:
    """The numbers of the system that a run ended with: ``after``, or the only one that is no yardstick."""
    if results is None:
        return {}
    comparison = compare(results)
    name = comparison.after if comparison else next(iter(order(list(results.systems))), None)
    found = results.systems.get(name, {}) if name else {}
    return {key: e for key, e in found.items() if not math.isnan(e.value)}


def _overview_cell(
    estimate: Interval | None,
    comparison: BeforeAfter | None,
    metric: ShownMetric,
    unlike: bool,
) -> OverviewCell:
    if estimate is None:
        return OverviewCell("–")
    change = comparison.get(metric.key) if comparison else None
    shown = change.by if change else ""
    return OverviewCell(number(estimate.value, metric.digits), shown, change.verdict if change else "", unlike)


def unique_names(folders: Sequence[RunFolder]) -> list[str]:
    """The runs' names; where two are equal, with their folders."""
    names = [folder.name for folder in folders]
    paths = [f" ({folder.path})" if names.count(folder.name) > 1 else "" for folder in folders]
    return [name + path for name, path in zip(names, paths, strict=True)]


def quoted(names: Sequence[str], places: Sequence[int]) -> str:
    """As in ``“a”, “b” and “c”``."""
    own = [f"“{names[place]}”" for place in places]
    return " and ".join([", ".join(own[:-1]), own[-1]] if len(own) > 1 else own)


def overview_headline(folders: Sequence[RunFolder]) -> str:
    """One sentence about several runs: which ends highest in the headline's metric, and whether that is sure.

    Only runs of the same pictures and signature are ranked; of others it says what differs.
    """
    endings = [_ending(folder.results) for folder in folders]
    names = unique_names(folders)
    shared = [key for key in dict.fromkeys(k for e in endings for k in e) if sum(key in e for e in endings) > 1]
    key = main_metric(shared)
    if key is None:
        return f"{len(folders)} runs side by side; they share no recall by which they could be compared."
    ranked, *others = comparable(folders, [i for i, e in enumerate(endings) if key in e], key)
    outside = [i for other in others for i in other]
    if len(ranked) == 1:
        first, other = (_results(folders[place]) for place in (ranked[0], outside[0]))
        name = describe(key, info=first.metrics.get(key)).name
        if (among := first.candidates.get(key)) is not None:  # the runs may differ in it
            name = name.replace(f"{among} ", "", 1)
        pair = quoted(names, [ranked[0], outside[0]])
        return f"{name}, not comparable: {pair} differ in {', '.join(differences(first, other, key))}."
    metric = _described(folders, key, ranked)
    ranking = _ranking(metric, {i: endings[i][key] for i in ranked}, names)
    return ranking + (f"; not comparable with these: {quoted(names, outside)}." if outside else ".")


def _ranking(metric: ShownMetric, estimates: dict[int, Interval], names: Sequence[str]) -> str:
    ranked = sorted(estimates, key=lambda i: -estimates[i].value)
    best, second = (estimates[i] for i in ranked[:2])
    first, other = number(best.value, metric.digits), number(second.value, metric.digits)
    start = f"Of {len(ranked)} runs, “{names[ranked[0]]}”"
    if first == other:
        return f"{start} and “{names[ranked[1]]}” end level: {metric.name} {first}"
    return (
        f"{start} ends highest: {metric.name} {first} against {other} for “{names[ranked[1]]}”{_overlap(best, second)}"
    )


def _overlap(best: Interval, second: Interval) -> str:
    if math.isnan(best.low) or math.isnan(second.high):
        return ", without intervals to compare"
    return "" if best.low > second.high else ", though their intervals overlap"


_HERE = Path(__file__).parent
# Recipe entries that say the most in a line; the whole recipe stands in a fold-out.
_SUMMARY_KEYS = ("name", "objective", "reward", "captioner", "scorer", "data", "steps", "epochs", "learning_rate", "lr",
            "batch", "batch_size", "samples", "baseline", "device")  # fmt: skip
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


@dataclass(frozen=True)
class RunView:
    """Holds what the template shows of one run; ``anchor`` is its id on the page. tests: of further test sets, by name,
    the table and the notes below it.
    """

    anchor: str
    run: RunFolder
    headline: str
    statistics: str
    command: str
    facts: list[tuple[str, str]]
    summary: list[tuple[str, str]]
    comparisons: list[BeforeAfter]
    table: ResultsTable | None
    tests: dict[str, tuple[ResultsTable, list[str]]]
    charts: list[Chart]
    more_charts: list[Chart]
    gallery: GalleryView | None


def build_report(runs: Sequence[Path], out: Path | None = None, *, describe: Describe = unexplained) -> Path:
    """Write one HTML page about ``runs`` (run folders) and return its path.

    ``out`` defaults to ``report.html`` in the run folder, for several runs in the current folder. The file is
    replaced in one step, so that a reader never meets half a page. Raises `UsageError` where a run is no run
    folder, `TellapartError` where the page cannot be written. ``describe``: see `read_run`.
    """
    if not runs:
        raise UsageError("no run was given; type: tellapart report RUN")
    folders = [read_run(Path(path), describe) for path in runs]
    default = (folders[0].path if len(folders) == 1 else Path()) / "report.html"
    own = len(folders) == 1 and not out
    out = Path(out) if out else default
    if not own:
        check_output(out, ".html", ".htm")
    words = [*map(str, runs), *(["-o", str(out)] if out.resolve() != default.resolve() else [])]
    page = render(folders, shlex.join(["tellapart", "report", *words]))
    write_output(out, page, own=own, errors="replace")
    return out


def render(folders: Sequence[RunFolder], command: str) -> str:
    """The page as text. ``command``: the command that makes it again."""
    album = Album()
    views = [_view(folder, f"run{i + 1}", album) for i, folder in enumerate(folders)]
    several: Overview | None = overview(folders) if len(folders) > 1 else None
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return template(_HERE / "page.html").render(
        views=views,
        title=overview_headline(folders) if several else views[0].headline,
        overview=several,
        trade=trade_off(folders, unique_names(folders)),
        sprites=album.sprites(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        curve=CURVE,
        command=command,
    )


def template(path: Path) -> jinja2.Template:
    """A page's template, in which every text is escaped and every name has to be known; ``base.html`` is its frame."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    environment.globals |= {"style": (_HERE / "page.css").read_text(encoding="utf-8"), "version": __version__}
    return environment.get_template(path.name)


def printable(value: Any) -> Any:
    """Captions are untrusted: characters that UTF-8 cannot encode become the replacement character."""
    if not isinstance(value, str):
        return value
    return _UNPRINTABLE.sub("\ufffd", value) if _UNPRINTABLE.search(value) else value


def _view(run: RunFolder, anchor: str, album: Album) -> RunView:
    gallery = view_gallery(run, album)
    first, more = charts(run.log)
    tests = run.results.test_sets if run.results else {}
    return RunView(
        anchor,
        run,
        KEPT_START if run.info.kept_step == 0 else headline(run.results),
        "" if run.info.kept_step == 0 else statistics(run.results),
        run.info.command if isinstance(run.info.command, str) else shlex.join(run.info.command),
        _facts(run),
        _recipe_summary(run),
        [one for one in comparisons(run.results) if one.changes] if run.results else [],
        table(run.results) if run.results else None,
        {name: (found, own.notes) for name, own in tests.items() if (found := table(own)) is not None},
        first,
        more,
        gallery,
    )


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    """The facts about a run, as label and text."""
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items() if version)
    facts = [
        ("Systems" if run.evaluation else "Run", run.name),
        ("Started", moment(info.created)),
        ("Took", duration(info.seconds) if info.seconds is not None else ""),
        ("Finished", "" if run.evaluation or info.seconds is not None else moment(info.finished or "not yet")),
        ("Device", (info.device or "") + (f", {info.threads} threads" if info.device and info.threads else "")),
        ("Seed", "" if info.seed is None else str(info.seed)),
        ("Versions", versions),
        ("Commit", info.commit or ""),
        ("Folder", "" if run.evaluation else str(run.path.resolve())),
    ]
    return [(label, text) for label, text in facts if text]


def moment(text: str) -> str:
    """An ISO time as people read it; any other text as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when.day} {when:%B %Y, %H:%M}{' UTC' if when.utcoffset() is not None and not when.utcoffset() else ''}"


def duration(seconds: float) -> str:
    """Seconds in the two units that matter: ``3 min 12 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _recipe_summary(run: RunFolder) -> list[tuple[str, str]]:
    """The main entries of the recipe with dotted keys; the details element has the whole recipe."""
    if run.recipe is None:
        return []
    try:
        entries = _flatten(tomllib.loads(run.recipe))
    except tomllib.TOMLDecodeError as error:
        run.gaps.append(f"recipe.toml is not TOML ({error}); it is shown as it is.")
        return []

    def place(key: str) -> int:
        parts = key.split(".")
        return min((_SUMMARY_KEYS.index(part) for part in parts if part in _SUMMARY_KEYS), default=len(_SUMMARY_KEYS))

    chosen = sorted((key for key in entries if place(key) < len(_SUMMARY_KEYS)), key=place)
    return [(key, entries[key]) for key in chosen[:12]]


def _flatten(table: dict[str, Any], start: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{start}{key}.")
        else:
            flat[f"{start}{key}"] = entry_text(value)
    return {key: text for key, text in flat.items() if text}


def entry_text(value: Any) -> str:
    """A recipe's entry as people read it: lists with commas, tables as ``kind, key value``; empty for an empty list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        texts = [entry_text(entry) for entry in value]
        return ("; " if any(isinstance(entry, dict) for entry in value) else ", ").join(filter(None, texts))
    if isinstance(value, dict):
        named = {key: entry_text(entry) for key, entry in value.items()}
        return ", ".join(text if key in ("kind", "name") else f"{key} {text}" for key, text in named.items() if text)
    return str(value)
