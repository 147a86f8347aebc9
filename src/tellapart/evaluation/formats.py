"""Formats results as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.metrics.metric_info import Candidates
from tellapart.metrics.result_cells import cell, intervals_note, pair_heads, pair_row, pairs_note, system_rows
from tellapart.metrics.results import Results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.report.shown_metric import ShownMetric, metric_of
from tellapart.report.template import template
from tellapart.utils.strict_json import json_text
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
    marks = _marks(results)
    parts = [
        f"{len(results.ids)} pictures; {intervals_note(results)}",
        _pipes(["metric", *heads], ([f"{metric}[^{marks[metric]}]", *cells] for metric, cells in rows.items())),
    ]
    if results.pairs:
        pairs = ([pair.metric, pair.a, pair.b, *pair_row(results, pair)] for pair in results.pairs)
        parts += ["Paired differences over pictures", _pipes(pair_heads(results), pairs), pairs_note(results)]
    parts += [f"Note: {_pipe_safe(note)}" for note in results.notes]
    parts.append("\n".join(f"[^{marks[metric]}]: `{results.signatures[metric]}`" for metric in rows))
    return "\n\n".join(parts) + "\n"


def latex(results: Results) -> str:
    """Formats a LaTeX table (booktabs) with a row per system, a column per metric, and signatures in small print."""
    metrics = {key: metric_of(results, key) for key in system_rows(results)[1]}
    found = results.systems.values()
    settings = {key: metric.setting(*(own.get(key) for own in found)) for key, metric in metrics.items()}
    values = {"results": results, "metrics": metrics, "settings": settings, "intervals": intervals_note(results)}
    values["pair_lines"] = list(_pair_lines(results, metrics))
    latex_file = template(Path(__file__).parent / "latex.txt")
    return latex_file.render(values, tex=_tex, cell=partial(cell, results)) + "\n"


def _pair_lines(results: Results, metrics: Mapping[str, ShownMetric]) -> Iterator[str]:
    for pair in results.pairs:
        difference, between, *ps = pair_row(results, pair)
        p = "; ".join(f"{head} {p}" for head, p in zip(pair_heads(results)[-len(ps) :], ps, strict=True))
        yield f"{metrics[pair.metric].name}, {pair.b} vs. {pair.a}: {difference} ({between}; {p})"
    if results.pairs:
        yield pairs_note(results)


def comma_separated(results: Results) -> str:
    """Formats CSV: one row per system and metric, then one row per paired difference (system minus ``against``)."""
    cells = [
        (name, metric, found, ("", "", "")) for name, own in results.systems.items() for metric, found in own.items()
    ] + [
        (pair.b, pair.metric, pair.difference, (pair.a, *map(_number, (pair.difference.p, pair.difference.p_holm))))
        for pair in results.pairs
    ]
    rows = (
        [
            name,
            metric,
            *map(_number, (found.value, found.low, found.high)),
            found.n,
            *_setting(results.candidates.get(metric)),
            results.signatures[metric],
            *(test if results.corrected else test[:2]),
        ]
        for name, metric, found, test in cells
    )
    heads = ["system", "metric", "value", "low", "high", "n", "candidates", "chance", "signature", "against", "p"]
    return csv_text([*heads, "p_holm"] if results.corrected else heads, rows)


def _setting(found: Candidates | None) -> tuple[str, str]:
    """Returns a recall metric's number of candidates and chance level, or empty strings for other metrics."""
    return ("", "") if found is None else (str(found), _number(found.chance))


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


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))


def _marks(results: Results) -> dict[str, int]:
    return {metric: number for number, metric in enumerate(system_rows(results)[1], start=1)}


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def _pipes(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(_pipe_safe, line)) + " |" for line in lines)


def _pipe_safe(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _tex(text: str) -> str:
    escaped = re.sub(r"[&%$#_{}\\~^−–…<>]", lambda found: _LATEX[found[0]], text)
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", escaped).replace("|", r"|\allowbreak{}")
