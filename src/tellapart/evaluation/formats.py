"""Formats results as Markdown, LaTeX, CSV or JSON, and the values of each picture as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.metrics.intervals import Interval
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.result_cells import cell, intervals_note, pair_heads, pair_row, pairs_note, system_rows
from tellapart.metrics.results import Results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.report.shown_metric import metric_of
from tellapart.report.template import template
from tellapart.utils.strict_json import json_text, json_value
from tellapart.utils.terminal_text import console, for_terminal

TABLE = "table"
_SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".txt": TABLE}
_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"−": "$-$", "–": "--", "…": r"\dots{}", "<": "$<$", ">": "$>$"},
}


def markdown(results: Results) -> str:
    """Formats Markdown tables for a README or an issue, with the signatures as footnotes."""
    heads, rows = system_rows(results)
    marked = [[f"{metric}[^{mark}]", *cells] for mark, (metric, cells) in enumerate(rows.items(), start=1)]
    parts = [f"{len(results.ids)} pictures; {intervals_note(results)}", _pipes(["metric", *heads], marked)]
    if results.pairs:
        pairs = ([pair.metric, pair.a, pair.b, *pair_row(results, pair)] for pair in results.pairs)
        parts += ["Paired differences over pictures", _pipes(pair_heads(results), pairs), pairs_note(results)]
    parts += [f"Note: {_pipe_safe(note)}" for note in results.notes]
    footnotes = (f"[^{mark}]: `{results.signatures[metric]}`" for mark, metric in enumerate(rows, start=1))
    return "\n\n".join([*parts, "\n".join(footnotes)]) + "\n"


def _pipes(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(_pipe_safe, line)) + " |" for line in lines)


def _pipe_safe(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def latex(results: Results) -> str:
    """Formats a LaTeX table (booktabs) with a row per system, a column per metric, and signatures in small print."""
    metrics = {key: metric_of(results, key) for key in system_rows(results)[1]}
    lines = []
    for pair in results.pairs:
        difference, between, *ps = pair_row(results, pair)
        p = "; ".join(f"{head} {p}" for head, p in zip(pair_heads(results)[-len(ps) :], ps, strict=True))
        lines.append(f"{metrics[pair.metric].name}, {pair.b} vs. {pair.a}: {difference} ({between}; {p})")
    return (
        template(Path(__file__).parent / "latex.txt").render(
            results=results,
            metrics=metrics,
            settings={
                key: metric.setting(*(own.get(key) for own in results.systems.values()))
                for key, metric in metrics.items()
            },
            intervals=intervals_note(results),
            pair_lines=[*lines, pairs_note(results)] if lines else [],
            tex=_tex,
            cell=partial(cell, results),
        )
        + "\n"
    )


def _tex(text: str) -> str:
    escaped = re.sub(r"[&%$#_{}\\~^−–…<>]", lambda found: _LATEX[found[0]], text)
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", escaped).replace("|", r"|\allowbreak{}")


def comma_separated(results: Results) -> str:
    """Formats CSV: one row per system and metric, then one row per paired difference (system minus ``against``)."""
    ps = ("p", "p_holm") if results.corrected else ("p",)

    def row(system: str, metric: str, found: Interval | Difference, *test: str) -> list[Any]:
        among = results.candidates.get(metric)
        numbers = map(_number, (found.value, found.low, found.high))
        setting = ("", "") if among is None else (str(among), _number(among.chance))
        return [system, metric, *numbers, found.n, *setting, results.signatures[metric], *test]

    systems = [
        row(name, metric, found, "", *[""] * len(ps))
        for name, own in results.systems.items()
        for metric, found in own.items()
    ]
    pairs = [
        row(pair.b, pair.metric, pair.difference, pair.a, *(_number(getattr(pair.difference, p)) for p in ps))
        for pair in results.pairs
    ]
    heads = ["system", "metric", "value", "low", "high", "n", "candidates", "chance", "signature", "against", *ps]
    return _csv(heads, [*systems, *pairs])


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))


def _csv(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *rows])
    return text.getvalue()


def table(results: Results) -> str:
    """Formats the table as it appears in the terminal, with the signatures below it."""
    text = io.StringIO()
    console(width=200, file=text).print(terminal_table(results))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    signatures = [f"{metric}: {signature}" for metric, signature in results.signatures.items()]
    return "\n".join([*lines, "", *map(for_terminal, signatures)]) + "\n"


RESULT_FORMATS: dict[str, Callable[[Results], str]] = {
    TABLE: table,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "json": lambda results: json_text(results.to_json()) + "\n",
}


def format_of(out: Path | None, format: str | None) -> str:
    """Returns ``--format`` if given. Otherwise, infers the format from the file name; without a file, returns
    "table". Raises `UsageError` for an unknown format or suffix.
    """
    if format is not None and format not in RESULT_FORMATS:
        raise UsageError(f"unknown format '{format}'; expected one of {', '.join(RESULT_FORMATS)}")
    if out is None or format is not None:
        return format or TABLE
    if out.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"{out}: cannot infer the format from this name; use one of {' '.join(_SUFFIXES)}, or add --format"
        )
    return _SUFFIXES[out.suffix.lower()]


def per_caption(results: Results, path: Path) -> str:
    """Formats one record per system and picture: ``id``, ``system``, ``caption`` (``captions`` if there are several),
    and the value of each per-picture metric. Writes CSV if ``path`` ends in .csv, otherwise JSON Lines.
    """
    lists = results.extra.get("caption_lists", {})
    records = [
        {
            "id": id_,
            "system": name,
            **({"captions": lists[name][row]} if name in lists else {"caption": captions[row]}),
            **{metric: json_value(value_N[row]) for metric, value_N in results.values.get(name, {}).items()},
        }
        for name, captions in results.captions.items()
        for row, id_ in enumerate(results.ids)
    ]
    if path.suffix.lower() != ".csv":
        return "".join(json_text(record) + "\n" for record in records)
    heads = list(dict.fromkeys(key for record in records for key in record))
    cells = ([record.get(head) for head in heads] for record in records)
    return _csv(heads, ([json_text(cell) if isinstance(cell, list) else cell for cell in row] for row in cells))
