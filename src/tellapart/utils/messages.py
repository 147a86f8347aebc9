"""Prints the messages of a command, depending on its verbosity."""

from __future__ import annotations

import functools
import sys
from enum import IntEnum

from tellapart.utils.terminal_text import for_terminal


class Verbosity(IntEnum):
    """How much a command prints: only results and errors, what a user needs to know, or every step."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_verbosity = Verbosity.NORMAL


def set_verbosity(verbosity: Verbosity) -> None:
    """Sets the verbosity of this process."""
    global _verbosity
    _verbosity = verbosity


def quiet() -> bool:
    """Returns whether to print only results and errors, without messages and progress bars."""
    return _verbosity == Verbosity.QUIET


def say(line: str) -> None:
    """Prints a line on stderr, unless ``--quiet`` is set."""
    if _verbosity >= Verbosity.NORMAL:
        print(for_terminal(line), file=sys.stderr, flush=True)


@functools.cache
def say_once(line: str) -> None:
    """Prints a line like `say`, but each distinct line only once per process."""
    say(line)


def detail(line: str) -> None:
    """Prints a line on stderr if ``--verbose`` is set."""
    if _verbosity >= Verbosity.VERBOSE:
        print(for_terminal(line), file=sys.stderr, flush=True)
