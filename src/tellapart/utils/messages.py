"""Messages to the terminal. Names, ids and captions are untrusted: escape sequences and rich markup in them are shown
as text, never obeyed."""

from __future__ import annotations

import shlex
import sys
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from tellapart.utils.text import for_terminal

if TYPE_CHECKING:
    from rich.console import Console


class Verbosity(IntEnum):
    """The amount that a command prints: results and errors only, what a user needs to know, or every step."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def typed_command() -> str:
    """Returns the command line of this process, quoted for a shell; pages and runs record it."""
    return shlex.join(["tellapart", *sys.argv[1:]])


def set_verbosity(verbosity: Verbosity) -> None:
    """Sets the verbosity of this process."""
    global _verbosity
    _verbosity = verbosity


def quiet() -> bool:
    """Returns whether to print results and errors only: no messages, no progress bars."""
    return _verbosity == Verbosity.QUIET


def say(line: str) -> None:
    """Prints a line on stderr, unless ``--quiet`` is set."""
    if _verbosity >= Verbosity.NORMAL:
        print(for_terminal(line), file=sys.stderr, flush=True)


@cache
def say_once(line: str) -> None:
    """`say`, once in a process for each line."""
    say(line)


def detail(line: str) -> None:
    """Prints a line on stderr if ``--verbose`` is set."""
    if _verbosity >= Verbosity.VERBOSE:
        print(for_terminal(line), file=sys.stderr, flush=True)


def console(**options: Any) -> Console:
    """Returns a rich console without markup and escape sequences in text. ``options``: those of
    `rich.console.Console`.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render_str(self, text: str, **more: Any) -> Any:  # before its width is measured
            return super().render_str(for_terminal(text), **more)

        def render(self, *arguments: Any, **more: Any) -> Any:
            for segment in super().render(*arguments, **more):
                yield segment if segment.control else Segment(for_terminal(segment.text), segment.style)

    return Plain(markup=False, emoji=False, highlight=False, **options)
