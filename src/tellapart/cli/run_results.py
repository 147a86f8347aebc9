"""Prints the results of a training run."""

from __future__ import annotations

from pathlib import Path

from tellapart.cli.output import show
from tellapart.evaluation.stored_results import read_results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.utils.messages import say


def show_run(folder: Path, as_json: bool) -> None:
    """Prints the results of a finished run, and the locations of its model and report."""
    value, results = read_results(folder)
    none = "Not evaluated, because the recipe names no test set. To evaluate the model, run: tellapart eval"
    show(value, lambda: terminal_table(results, without=("human", "chance")) if results.systems else none, as_json)
    for label, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{label}: {file}")
