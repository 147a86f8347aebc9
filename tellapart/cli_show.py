"""How every command shows its result: a table for people, or JSON and nothing else."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

WIDE = 200  # columns of a table that goes to a file or a pipe: rich would fold it at 80

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]


def show(value: Any, told: Any, as_json: bool) -> None:
    """A result as JSON alone, or as a table (or a line) for people."""
    if as_json:
        import json

        print(json.dumps(value, ensure_ascii=False))
    elif isinstance(told, str):
        print(told)
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else WIDE).print(told)
