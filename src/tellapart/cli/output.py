"""Prints a command's result as a table or text for people, or only as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rich.console import RenderableType

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
