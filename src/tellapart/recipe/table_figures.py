"""Reads the figures of a paper's table from the results of its planned commands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tellapart.recipe.paper_tables import Column, Row
from tellapart.recipe.schema import Recipe
from tellapart.recipe.table_plan import JUDGED, Plan, recipe_of
from tellapart.report.training_log import logged_validations

Value = float | str | list[tuple[int, float]]  # a number, words or a file, or values by training step


class Figure(NamedTuple):
    """A cell that we measured. ``interval``: the 95% confidence interval of a number."""

    value: Value
    interval: tuple[float, float] | None = None


def figures(plan: Plan, study: Mapping[str, Mapping[str, float]] | None = None) -> dict[tuple[int, int], Figure]:
    """Returns the figures that we measured, by row and column, from the commands that have run so far.

    ``study``: figures from the table's human study, by system and name.
    """
    places = {id(row): place for place, row in enumerate(plan.table.rows)}
    evaluated = {test: _results(plan, test) for test in plan.systems_by_test()}
    result: dict[tuple[int, int], Figure] = {}
    for row, column, test in plan.cells():
        if column.evaluated:
            figure = _evaluated(plan, row, column, test, evaluated[test])
        else:
            figure = Figure(_value(plan, row, column, test, study or {}))
        if figure.value not in (None, "", []):
            result[places[id(row)], plan.table.columns.index(column)] = figure
    return result


def _value(plan: Plan, row: Row, column: Column, test: str, study: Mapping[str, Mapping[str, float]]) -> Value:
    """Returns the value of a cell that ``eval`` does not measure, or "" if there is none yet."""
    if column.setting:
        steps = plan.source(row.system).steps  # none if the user brings the captioner
        return product_of(recipe_of(steps[-1]), column.setting) if steps else ""
    if column.log:
        return logged(plan.run_of(row.system), column.log)
    if column.study:
        people = plan.paper.systems[row.system].human
        stem = "human" if people else plan.captions_of(row.system, test).stem
        return study.get(stem, {}).get(column.study, "")
    out = plan.command(row.system, column, test).out
    return str(out) if out.exists() else ""


def _evaluated(plan: Plan, row: Row, column: Column, test: str, results: Mapping[str, Any]) -> Figure:
    """Returns the figure of a cell that ``eval`` measures; its value is "" if there is none yet.

    ``eval`` names the systems in file order, followed by ``human``. The names of judge metrics have a suffix with the
    judge and the dates.
    """
    systems = plan.systems_by_test()[test]
    files = [system for system in systems if not plan.paper.systems[system].human]
    names = [name for name in results.get("systems", {}) if name != "human"]
    of_files = dict(zip(files, names, strict=bool(names)))
    name = of_files.get(row.system, "human" if row.system not in files and results else "")
    if not name:
        return Figure("")
    if column.words:
        words = [word["lemma"] for word in results.get("words", {}).get(name, ()) if word["pos"] == column.words]
        return Figure(", ".join(words))
    for key, cell in results["systems"][name].items():
        if key == column.metric or (column.metric.startswith(JUDGED) and key.startswith(f"{column.metric}@")):
            low, high = cell.get("low"), cell.get("high")
            value = "" if cell.get("value") is None else cell["value"]
            return Figure(value, None if low is None or high is None else (low, high))
    return Figure("")


def table_notes(plan: Plan) -> list[str]:
    """Returns the notes of the plan, followed by the notes in the results."""
    tests = plan.systems_by_test()
    lines = {f"{test}: {note}": None for test in tests for note in _results(plan, test).get("notes", ()) if note}
    return [*plan.notes(), *lines]


def _results(plan: Plan, test: str) -> dict[str, Any]:
    """Returns the results of ``eval`` on a test set, or an empty dict if it has not run yet."""
    path = plan.result_of(test)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def logged(run: Path, name: str) -> list[tuple[int, float]]:
    """Returns the (step, value) pairs that a run's validations logged under a name, in order.

    Returns an empty list if the run has not started. ``name``: a name or a prefix, because "recall@1.random" is
    followed by the pool size.
    """
    validations = logged_validations(run)
    return [pair for key, series in validations.items() if key.startswith(name) for pair in series.items()]


def product_of(recipe: Recipe, keys: str) -> float:
    """Returns the product of a recipe's values for keys such as ``training.batch_size*training.steps``."""
    return math.prod(float(attrgetter(key)(recipe)) for key in keys.split("*"))
