"""How every command shows its result: a table for people, or JSON and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tellapart.utils.messages import console, say
from tellapart.utils.text import for_terminal, json_text

WIDE = 200  # columns of a table that goes to a file or a pipe: rich would fold it at 80

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.steps=200. Repeatable."),
]


def show(value: Any, tell: Callable[[], Any], as_json: bool) -> None:
    """A result as JSON alone, or as the table (or the line) for people that ``tell`` makes."""
    if as_json:
        print(json_text(value))
    elif isinstance(told := tell(), str):
        print(for_terminal(told))
    else:
        console(width=None if sys.stdout.isatty() else WIDE).print(told)


def show_run(folder: Path, as_json: bool) -> None:
    """A finished run's table and where its report lies."""
    import json

    from tellapart.evaluation.comparison import results_from_json

    path = folder / "results.json"
    empty: dict[str, Any] = {"systems": {}, "pairs": [], "signatures": {}}
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty
    show(value, lambda: results_from_json(value).table(without=("human", "chance")), as_json)
    for what, file in (("model", folder / "model"), ("report", folder / "report.html")):
        if file.exists():
            say(f"{what}: {file}")
