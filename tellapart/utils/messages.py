"""What a command tells people. All that is shown goes through here: names, ids and captions come from anywhere, and a
terminal obeys the escape sequences in them, as rich obeys ``[bold]``."""

from __future__ import annotations

import shlex
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from tellapart.utils.text import for_terminal

if TYPE_CHECKING:
    from rich.console import Console


class Verbosity(IntEnum):
    """How much a command says: results and errors only, what a user needs to know, or every step."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def typed_command() -> str:
    """The command that this process was started with, as a shell takes it: pages and runs say what made them."""
    return shlex.join(["tellapart", *sys.argv[1:]])


def set_verbosity(verbosity: Verbosity) -> None:
    """For this process, from now on."""
    global _verbosity
    _verbosity = verbosity


def quiet() -> bool:
    """Whether nothing but results and errors is wanted: no messages, no progress bars."""
    return _verbosity == Verbosity.QUIET


def say(line: str) -> None:
    """A line on stderr; nothing with ``--quiet``."""
    if _verbosity >= Verbosity.NORMAL:
        print(for_terminal(line), file=sys.stderr, flush=True)


def detail(line: str) -> None:
    """A line on stderr with ``--verbose`` only."""
    if _verbosity >= Verbosity.VERBOSE:
        print(for_terminal(line), file=sys.stderr, flush=True)


def console(**options: Any) -> Console:
    """A rich console that shows text as it is: no markup, no escape sequences. ``options``: `rich`'s."""
    from rich.console import Console
    from rich.segment import Segment

    class Plain(Console):
        def render_str(self, text: str, **more: Any) -> Any:  # before its width is measured
            return super().render_str(for_terminal(text), **more)

        def render(self, *arguments: Any, **more: Any) -> Any:
            for segment in super().render(*arguments, **more):
                yield segment if segment.control else Segment(for_terminal(segment.text), segment.style)

    return Plain(markup=False, emoji=False, highlight=False, **options)
