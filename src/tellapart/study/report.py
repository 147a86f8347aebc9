"""A study's report: tables as in the papers, one HTML page, and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich
import rich.console
import rich.table
import rich.text

from tellapart.metrics.intervals import Interval
from tellapart.metrics.result_cells import format_p
from tellapart.report.template import template
from tellapart.study.analysis import ACCURACY, F1, Person, QuestionAgreement, StudyResults
from tellapart.study.design import ASPECTS, CONTROL, ITEM, MORE, PRACTICE, WRONG
from tellapart.study.store import COMPLETE, moment
from tellapart.utils.outputs import write_output
from tellapart.utils.strict_json import json_value
from tellapart.utils.tables import table_of
from tellapart.utils.typed_command import typed_command

HEADS = {
    "pick": {ACCURACY: "accuracy"},
    "rate": {ASPECTS[0]: "Descrip.", ASPECTS[1]: "Acc.", F1: "F1", ASPECTS[2]: "Flu."},
    "compare": {MORE: "tells more", WRONG: "says something wrong"},
}
FIRST = {"pick": "Captions", "rate": "Method", "compare": "Captions"}
CAPTIONS = {
    "pick": "How often participants picked the target among {pictures} pictures, in % (as in paper 3, Table 6)",
    "rate": (
        "Mean ratings from 1 (terrible) to 5 (excellent); F1 is the harmonic mean of Descrip. and "
        "Acc. (as in paper 1, Table 2)"
    ),
    "compare": (
        "Percentage of comparisons in which the caption tells more (a tie counts as half) or is marked as wrong"
    ),
}


def digits(results: StudyResults) -> int:
    """Returns the number of decimals that the papers use."""
    return 2 if results.study.kind == "rate" else 1


def number(value: float, places: int) -> str:
    """Formats a number, or a dash if it is not finite."""
    return f"{value:.{places}f}".replace("-", "−") if math.isfinite(value) else "–"


def cell(found: Interval, places: int) -> str:
    """Formats a value with its interval."""
    return f"{number(found.value, places)} [{number(found.low, places)}, {number(found.high, places)}]"


def main_table(results: StudyResults) -> tuple[str, list[str], list[list[str]]]:
    """Returns the caption, heads and rows of the systems table."""
    kind, places = results.study.kind, digits(results)
    pictures = max(len(trial.pictures) for trial in results.study.trials if trial.role == ITEM)
    heads = [FIRST[kind], *HEADS[kind].values()]
    rows = [[name, *(cell(own[metric], places) for metric in results.metrics)] for name, own in results.systems.items()]
    return CAPTIONS[kind].format(pictures=pictures), heads, rows


def pair_table(results: StudyResults) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of the differences table."""
    places, level = digits(results), results.study.settings.analysis.confidence
    heads = ["metric", "a", "b", "b − a", f"{100 * level:g}% interval", "p"]
    rows = []
    for pair in results.pairs:
        d = pair.difference
        span = f"[{number(d.low, places)}, {number(d.high, places)}]"
        rows.append([HEADS[results.study.kind][pair.metric], pair.a, pair.b, f"{d.value:+.{places}f}".replace("-", "−"),
                     span, format_p(d.p)])  # fmt: skip
    return heads, rows


def agreement_rows(found: list[QuestionAgreement]) -> tuple[list[str], list[list[str]]]:
    """Returns the heads and rows of the agreement table."""
    heads = ["question", "items with two answers", "answers", "Krippendorff’s α", "Fleiss’ κ"]
    rows = [
        [one.question, f"{one.units:,}", f"{one.answers:,}", *(number(math.nan if x is None else x, 2)
         for x in (one.alpha, one.kappa))] for one in found
    ]  # fmt: skip
    return heads, rows


def headline(results: StudyResults) -> str:
    """Summarizes the result in one sentence."""
    kind, metric = results.study.kind, F1 if results.study.kind == "rate" else results.metrics[0]
    ranked = sorted(results.systems, key=lambda name: -_or_low(results.systems[name][metric].value))
    best = ranked[0]
    value = number(results.systems[best][metric].value, digits(results))
    if len(ranked) == 1:
        return f"{best}: {value}{'' if kind == 'rate' else ' %'} {HEADS[kind][metric]}"
    met = (p for p in results.pairs if p.metric == metric and {p.a, p.b} == {best, ranked[1]})
    against = next(met, None)  # two systems in `compare` may not have been compared yet
    clear = against is not None and (against.difference.low > 0 or against.difference.high < 0)
    what = {"pick": "is best at telling pictures apart", "rate": "has the highest F1", "compare": "tells more"}[kind]
    unit = "" if kind == "rate" else " %"
    end = "" if clear else f", but its lead over {ranked[1]} may be chance"
    return f"{best} {what} ({value}{unit}){end}"


def _or_low(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def to_json(results: StudyResults) -> dict[str, Any]:
    """Returns systems and pairs in the format of ``tellapart eval --json``, and additional facts about the study."""
    study = results.study

    return dict(json_value({
        "systems": {name: {m: asdict(own[m]) for m in results.metrics} for name, own in results.systems.items()},
        "pairs": [pair.to_json() for pair in results.pairs],
        "signatures": dict.fromkeys(results.metrics, results.signature),
        "study": {
            "kind": study.kind,
            "title": study.settings.title,
            "stamp": study.stamp,
            "stamps": [{"at": moment(at), "stamp": stamp, "reason": why} for at, stamp, why in results.stamps],
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
    }))  # fmt: skip


def tables(results: StudyResults) -> rich.console.Group:
    """Returns the report as tables for a terminal."""
    caption, heads, rows = main_table(results)
    parts: list[Any] = [rich.text.Text(headline(results)), table_of(heads, rows, caption)]
    if results.pairs:
        parts.append(table_of(*pair_table(results), "Differences"))
    parts.append(table_of(*agreement_rows(results.agreement), "Agreement"))
    parts += [rich.text.Text(line) for line in (*people_lines(results), *results.notes, results.signature)]
    return rich.console.Group(*parts)


def people_lines(results: StudyResults) -> list[str]:
    """Returns lines about participants, exclusions with reasons, and durations."""
    out = [one for one in results.people if one.excluded]
    unfinished = sum(one.status != COMPLETE for one in results.people)
    lines = [
        f"{len(results.people)} began, {unfinished} did not complete, {len(out)} excluded, "
        f"{len(results.counted)} counted (planned: {results.study.quota})"
    ]
    lines += [f"excluded: {one.name}: {one.excluded}" for one in out]
    low, middle, high = (number(value, 1) for value in results.seconds)
    minutes = sorted(one.minutes for one in results.counted)
    lines.append(f"seconds per item: {middle} (quartiles {low} to {high}); minutes per participant: "
                 f"{number(minutes[len(minutes) // 2], 1)}")  # fmt: skip
    return lines


def chance_level(results: StudyResults, metric: str) -> float | None:
    """Returns the percentage expected from blind answers; None if it is unknown."""
    if results.study.kind == "pick":
        return 100 / max(len(trial.pictures) for trial in results.study.trials if trial.role == ITEM)
    return 50.0 if metric == MORE else None


def design_facts(results: StudyResults) -> list[tuple[str, str]]:
    """Returns the design decisions that were made before the study."""
    study, rule = results.study, results.study.settings.exclusion
    items = {trial.unit for trial in study.trials if trial.role == ITEM}
    rules = [f"more than {rule.max_control_errors} of {len(study.of_role[CONTROL])} control items wrong"]
    if rule.min_median_seconds:
        rules.append(f"a median time below {rule.min_median_seconds:g} s per item")
    if rule.max_same_answer < 1:
        rules.append(f"the same answer to more than {100 * rule.max_same_answer:g}% of the items")
    blocks = sorted(len(block) for block in study.blocks)
    size = f"{blocks[0]}" if blocks[0] == blocks[-1] else f"{blocks[0]} to {blocks[-1]}"
    facts = [
        ("Items", f"{len(items):,} {'look-alike sets' if study.kind == 'pick' else 'pictures'}"),
        ("Systems", ", ".join(study.systems)),
        ("Blocks", f"{len(study.blocks):,} of {size} items, {len(study.of_role[CONTROL])} control items and "
         f"{len(study.of_role[PRACTICE])} practice items; {study.settings.sampling.raters} participants each"),
        ("Excluded", "participants with " + " or ".join(rules)),
        ("Created with", str(study.made.get("command", ""))),
        ("Stamp", study.stamp),
    ]  # fmt: skip
    for at, stamp, why in results.stamps:
        facts.append(("Stamped" if not why else "Amended", f"{moment(at)}: {stamp[:16]}{f': {why}' if why else ''}"))
    return facts


def person_rows(people: list[Person]) -> list[list[str]]:
    """Returns the rows of the participants table."""
    return [
        [one.name, one.excluded or ("counted" if one.status == COMPLETE else one.status.replace("_", " ")),
         str(one.items), str(one.control_errors), number(one.minutes, 1), number(one.seconds_per_item, 1)]
        for one in people
    ]  # fmt: skip


def page(results: StudyResults, command: str) -> str:
    """Renders the report as one page. ``command``: the command that reproduces it."""

    caption, heads, rows = main_table(results)
    pair_heads, pair_rows = pair_table(results)
    agreement_heads, agreed = agreement_rows(results.agreement)
    return template(Path(__file__).parent / "report.html").render(
        title=results.study.settings.title,
        headline=headline(results),
        caption=caption,
        heads=heads,
        rows=rows,
        results=results,
        metrics=[
            (metric, HEADS[results.study.kind][metric], chance_level(results, metric)) for metric in results.metrics
        ],
        scale=(1, 5) if results.study.kind == "rate" else (0, 100),
        cell=lambda interval: cell(interval, digits(results)),
        pair_heads=pair_heads,
        pair_rows=pair_rows,
        agreement_heads=agreement_heads,
        agreement=agreed,
        people_lines=people_lines(results),
        people=person_rows(results.people),
        refusals=results.refusals,
        facts=design_facts(results),
        notes=results.notes,
        signature=results.signature,
        command=command,
    )


def write_report(results: StudyResults, path: Path, command: str | None = None, *, own: bool = False) -> None:
    """Writes the report as a page. For ``own``, see `write_output`."""
    write_output(path, page(results, command or typed_command()), own=own, errors="replace")
