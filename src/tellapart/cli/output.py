"""Prints a command's result as a table or text for people, or only as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from tellapart.evaluation.stored_results import read_results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.utils.messages import say
from tellapart.utils.strict_json import json_text
from tellapart.utils.terminal_text import console, for_terminal
from tellapart.utils.write_errors import stdout_errors

WIDE = 200  # columns of tables that are written to a file or a pipe, where rich would wrap at 80


def show(value: Any, render: Callable[[], RenderableType], as_json: bool) -> None:
    """Prints ``value`` as JSON, or the result of ``render``: a line of text or anything that rich prints."""
    rendered = json_text(value) if as_json else render()
    with stdout_errors():
        if isinstance(rendered, str):
            print(rendered if as_json else for_terminal(rendered))
        else:
            console(width=None if sys.stdout.isatty() else WIDE).print(rendered)


def show_run(folder: Path, as_json: bool) -> None:
    """Prints the results of a finished run, and the locations of its model and report."""
    value, results = read_results(folder)
    none = "Not evaluated, because the recipe names no test set. To evaluate the model, run: tellapart eval"
    show(value, lambda: terminal_table(results, without=("human", "chance")) if results.systems else none, as_json)
    for label, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{label}: {file}")
