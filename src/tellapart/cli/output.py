"""How every command shows its result: as a table or a line for people, or as JSON alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.utils.messages import console, say
from tellapart.utils.text import for_terminal, json_text

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDE = 200  # columns of a table that goes to a file or a pipe, where rich would wrap at 80

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.steps=200. Repeatable."),
]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Remove the run in --out and begin anew, once all is checked and loaded.")
]


def show(value: Any, render: Callable[[], RenderableType], as_json: bool) -> None:
    """Print ``value`` as JSON, or what ``render`` returns: a line of text or anything that rich prints."""
    if as_json:
        print(json_text(value))
    elif isinstance(rendered := render(), str):
        print(for_terminal(rendered))
    else:
        console(width=None if sys.stdout.isatty() else WIDE).print(rendered)


def show_run(folder: Path, as_json: bool) -> None:
    """Print the results of a finished run, and where its model and report are."""
    from tellapart.evaluation.formats import read_results

    value, results = read_results(folder)
    show(value, lambda: results.table(without=("human", "chance")), as_json)
    for label, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{label}: {file}")
