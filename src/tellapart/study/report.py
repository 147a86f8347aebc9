"""Writes a study's report as tables like those in the papers, as one HTML page, and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rich
import rich.console
import rich.text

from tellapart.metrics.intervals import Interval
from tellapart.metrics.result_cells import format_p
from tellapart.report.template import template
from tellapart.study.analysis import ACCURACY, F1, StudyResults
from tellapart.study.questions import ASPECTS, MORE, WRONG
from tellapart.study.store import COMPLETE
from tellapart.utils.outputs import write_output
from tellapart.utils.strict_json import json_value
from tellapart.utils.tables import table_of
from tellapart.utils.typed_command import typed_command

Table = tuple[list[str], list[list[str]]]  # column headers and rows


@dataclass(frozen=True)
class StudyTables:
    """How the results of one kind of study are shown.

    first: header of the column with the systems.
    heads: headers of the metrics' columns.
    ranked_by: the metric by which the systems are ranked.
    best: completes the headline after the best system's name.
    digits: number of decimals, as in the papers.
    """

    caption: str
    first: str
    heads: dict[str, str]
    ranked_by: str
    best: str
    digits: int = 1
    unit: str = "%"


LAYOUTS = {
    "pick": StudyTables(
        "How often participants picked the target among {pictures} pictures, in % (as in paper 3, Table 6)",
        "Captions",
        {ACCURACY: "accuracy"},
        ACCURACY,
        "is best at telling pictures apart",
    ),
    "rate": StudyTables(
        "Mean ratings from 1 (terrible) to 5 (excellent); F1 is the harmonic mean of Descrip. and "
        "Acc. (as in paper 1, Table 2)",
        "Method",
        {ASPECTS[0]: "Descrip.", ASPECTS[1]: "Acc.", F1: "F1", ASPECTS[2]: "Flu."},
        F1,
        "has the highest F1",
        digits=2,
        unit="",
    ),
    "compare": StudyTables(
        "Percentage of comparisons in which the caption tells more (a tie counts as half) or is marked as wrong",
        "Captions",
        {MORE: "tells more", WRONG: "says something wrong"},
        MORE,
        "tells more",
    ),
}


def number(value: float | None, places: int) -> str:
    """Formats a number. An undefined number becomes a dash."""
    return f"{value:.{places}f}".replace("-", "−") if value is not None and math.isfinite(value) else "–"


def cell(interval: Interval, places: int) -> str:
    """Formats a value with its interval."""
    return f"{number(interval.value, places)} [{number(interval.low, places)}, {number(interval.high, places)}]"


def main_table(results: StudyResults) -> Table:
    """Returns the table of the systems' means."""
    layout = LAYOUTS[results.study.kind]
    rows = [[name, *(cell(own[m], layout.digits) for m in layout.heads)] for name, own in results.systems.items()]
    return [layout.first, *layout.heads.values()], rows


def pair_table(results: StudyResults) -> Table:
    """Returns the table of differences between pairs of systems."""
    layout, rows = LAYOUTS[results.study.kind], []
    for pair in results.pairs:
        one, places = pair.difference, layout.digits
        sign = "+" if one.value >= 0 else ""
        span = f"[{number(one.low, places)}, {number(one.high, places)}]"
        value = sign + number(one.value, places)
        rows.append([layout.heads[pair.metric], pair.a, pair.b, value, span, format_p(one.p)])
    level = f"{100 * results.study.settings.analysis.confidence:g}% interval"
    return ["metric", "a", "b", "b − a", level, "p"], rows


def agreement_table(results: StudyResults) -> Table:
    """Returns the table of the raters' agreement on each question."""
    rows = [
        [one.question, f"{one.units:,}", f"{one.answers:,}", number(one.alpha, 2), number(one.kappa, 2)]
        for one in results.agreement
    ]
    return ["question", "items with two answers", "answers", "Krippendorff’s α", "Fleiss’ κ"], rows


def headline(results: StudyResults) -> str:
    """Summarizes the result in one sentence."""
    layout = LAYOUTS[results.study.kind]
    values = {name: own[layout.ranked_by].value for name, own in results.systems.items()}
    best, *others = sorted(values, key=lambda name: (math.isnan(values[name]), -values[name]))
    value = number(values[best], layout.digits) + layout.unit
    if not others:
        return f"{best}: {value} {layout.heads[layout.ranked_by]}"
    clear = any(
        pair.metric == layout.ranked_by and {pair.a, pair.b} == {best, others[0]}
        and (pair.difference.low > 0 or pair.difference.high < 0)
        for pair in results.pairs  # two systems in `compare` may not have been compared yet
    )  # fmt: skip
    return f"{best} {layout.best} ({value})" + ("" if clear else f", but its lead over {others[0]} may be chance")


def to_json(results: StudyResults) -> dict[str, Any]:
    """Returns systems and pairs in the format of ``tellapart eval --json``, plus additional facts about the study."""
    study = results.study
    value: dict[str, Any] = json_value({
        "systems": {
            name: {metric: asdict(interval) for metric, interval in own.items()}
            for name, own in results.systems.items()
        },
        "pairs": [pair.to_json() for pair in results.pairs],
        "signatures": dict.fromkeys(LAYOUTS[study.kind].heads, results.signature),
        "study": {
            "kind": study.kind,
            "title": study.settings.title,
            "stamp": study.stamp,
            "stamps": results.stamps,
            "planned": study.quota,
            "counted": len(results.counted),
            "excluded": {one.name: one.excluded for one in results.people if one.excluded},
            "incomplete": [one.name for one in results.people if one.status != COMPLETE],
            "not_taking_part": results.refusals,
            "seconds_per_item": dict(zip(("q1", "median", "q3"), results.seconds, strict=True)),
            "participants": [asdict(one) for one in results.people],
        },
        "agreement": [asdict(one) for one in results.agreement],
        "notes": results.notes,
    })  # fmt: skip
    return value


def tables(results: StudyResults) -> rich.console.Group:
    """Returns the report as tables for a terminal."""
    return rich.console.Group(
        rich.text.Text(headline(results)),
        table_of(*main_table(results), caption(results)),
        *([table_of(*pair_table(results), "Differences")] if results.pairs else []),
        table_of(*agreement_table(results), "Agreement"),
        *map(rich.text.Text, (*people_lines(results), *results.notes, results.signature)),
    )


def caption(results: StudyResults) -> str:
    """Returns the caption of the table of the systems' means."""
    return LAYOUTS[results.study.kind].caption.format(pictures=results.study.candidates)


def people_lines(results: StudyResults) -> list[str]:
    """Returns lines about the participants, the excluded participants with reasons, and the time per item."""
    excluded = [f"excluded: {one.name}: {one.excluded}" for one in results.people if one.excluded]
    unfinished = sum(one.status != COMPLETE for one in results.people)
    low, middle, high = (number(value, 1) for value in results.seconds)
    minutes = sorted(one.minutes for one in results.counted)
    return [
        f"{len(results.people)} began, {unfinished} did not complete, {len(excluded)} excluded, "
        f"{len(results.counted)} counted (planned: {results.study.quota})",
        *excluded,
        f"seconds per item: {middle} (quartiles {low} to {high}); minutes per participant: "
        f"{number(minutes[len(minutes) // 2], 1)}",
    ]


def page(results: StudyResults, command: str) -> str:
    """Renders the report as one page. ``command``: the command that reproduces the page."""
    study, layout = results.study, LAYOUTS[results.study.kind]
    return template(Path(__file__).parent / "report.html").render(
        results=results,
        study=study,
        headline=headline(results),
        caption=caption(results),
        systems=main_table(results),
        pairs=pair_table(results),
        agreement=agreement_table(results),
        people_lines=people_lines(results),
        metrics=layout.heads,
        chance={ACCURACY: 100 / study.candidates, MORE: 50.0} if layout.unit else {},
        scale=(0, 100) if layout.unit else (1, 5),
        cell=lambda interval: cell(interval, layout.digits),
        number=number,
        command=command,
    )


def write_report(results: StudyResults, path: Path, command: str | None = None, *, own: bool = False) -> None:
    """Writes the report as a page. For ``own``, see `write_output`."""
    write_output(path, page(results, command or typed_command()), own=own, errors="replace")
