"""Reads the figures of a paper's table from the results of its planned commands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from tellapart.recipe.schema import Recipe
from tellapart.recipe.table_plan import JUDGED, Plan, recipe_of

Figure = float | str | list[tuple[int, float]]  # a number, words or a file, or values by training step


def figures(plan: Plan, study: Mapping[str, Mapping[str, float]] | None = None) -> dict[tuple[int, int], Figure]:
    """Returns the figures that we measured, by row and column, from the commands that have run so far.

    ``study``: figures from the table's human study, by system and name.
    """
    places = {id(row): place for place, row in enumerate(plan.table.rows)}
    results, names = _results_and_names(plan)
    result: dict[tuple[int, int], Figure] = {}
    for row, column, test in plan.cells():
        value: Figure | None = None
        if column.setting:
            *_, train = plan.training(row.system)
            value = product_of(recipe_of(train), column.setting)
        elif column.log:
            value = logged(plan.run_of(row.system), column.log)
        elif column.study:
            people = plan.paper.systems[row.system].human
            stem = "human" if people else plan.captions_of(row.system, test).stem
            value = (study or {}).get(stem, {}).get(column.study)
        elif column.command:
            out = plan.command(row.system, column, test).out
            value = str(out) if out.exists() else None
        elif name := names[test].get(row.system):
            on = results[test]
            words = [word["lemma"] for word in on.get("words", {}).get(name, ()) if word["pos"] == column.words]
            value = ", ".join(words) if column.words else measured(on["systems"][name], column.metric)
        if value not in (None, "", []):
            assert value is not None
            result[places[id(row)], plan.table.columns.index(column)] = value
    return result


def intervals(plan: Plan) -> dict[tuple[int, int], tuple[float, float]]:
    """Returns the 95% confidence intervals of the measured figures, by row and column."""
    places = {id(row): place for place, row in enumerate(plan.table.rows)}
    results, names = _results_and_names(plan)
    result = {}
    for row, column, test in plan.cells():
        if column.metric and (name := names[test].get(row.system)):
            ends = [measured(results[test]["systems"][name], column.metric, end) for end in ("low", "high")]
            if ends[0] is not None and ends[1] is not None:
                result[places[id(row)], plan.table.columns.index(column)] = (ends[0], ends[1])
    return result


def table_notes(plan: Plan) -> list[str]:
    """Returns the notes of the plan, followed by the notes in the results."""
    tests = plan.systems_by_test()
    lines = {f"{test}: {note}": None for test in tests for note in _results(plan, test).get("notes", ()) if note}
    return [*plan.notes(), *lines]


def _results_and_names(plan: Plan) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, str]]]:
    """Returns the results on each test set, and the name that each system has in them."""
    results = {test: _results(plan, test) for test in plan.systems_by_test()}
    return results, {test: _names(plan, result, test) for test, result in results.items()}


def _results(plan: Plan, test: str) -> dict[str, Any]:
    """Returns the results of ``eval`` on a test set, or an empty dict if it has not run yet."""
    path = plan.result_of(test)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _names(plan: Plan, results: Mapping[str, Any], test: str) -> dict[str, str]:
    """Returns the name that ``eval`` gives to each system: the names in file order, followed by ``human``."""
    systems = plan.systems_by_test()[test]
    files = [system for system in systems if not plan.paper.systems[system].human]
    names = [name for name in results.get("systems", {}) if name != "human"]
    people = {system: "human" for system in systems if system not in files and results}
    return dict(zip(files, names, strict=bool(names))) | people


def measured(results: Mapping[str, Any], metric: str, part: str = "value") -> float | None:
    """Returns a field of a system's result for a metric: its value, or an end of its interval.

    The names of judge metrics have a suffix with the judge and the dates.
    """
    keys = [key for key in results if key == metric or (metric.startswith(JUDGED) and key.startswith(f"{metric}@"))]
    return results[keys[0]].get(part) if keys else None


def logged(run: Path, name: str) -> list[tuple[int, float]]:
    """Returns the (step, value) pairs that a run's validations logged under a name, in order.

    Returns an empty list if the run has not started. ``name``: a name or a prefix, because "recall@1.random" is
    followed by the pool size.
    """
    path = run / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    records = [record for record in map(json.loads, lines) if record.get("event") == "validation"]
    values = ((record["step"], value) for record in records for key, value in record.items() if key.startswith(name))
    return [(int(step), float(value)) for step, value in values]


def product_of(recipe: Recipe, keys: str) -> float:
    """Returns the product of a recipe's values for keys such as ``training.batch_size*training.steps``."""
    return math.prod(float(attrgetter(key)(recipe)) for key in keys.split("*"))
