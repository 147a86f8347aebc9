"""Errors that a user can fix: their messages say what was found, what was expected, and what to run."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable


class TellapartError(Exception):
    """Base class for errors with a one-line message. Commands exit with ``exit_code`` and print no traceback."""

    exit_code = 1


class UsageError(TellapartError):
    """A wrong command, recipe or specification."""

    exit_code = 2


class PictureError(TellapartError):
    """A picture that cannot be read. Long jobs count such pictures and continue."""


class MissingExtra(TellapartError):
    """A missing optional dependency, with the command that installs it."""

    exit_code = 2

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} requires an extra that is not installed; run: pip install 'tellapart[{extra}]'")


def error_line(error: Exception) -> str:
    """Describes an error as one line: its type and message, at most 200 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def need_extra(extra: str, what: str, *packages: str) -> None:
    """Raises `MissingExtra` if one of the packages is not installed. Does not import the packages."""
    for package in packages:
        try:
            found = importlib.util.find_spec(package)
        except ValueError:  # `sys.modules` maps it to None
            found = None
        if found is None:
            raise MissingExtra(extra, what)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint such as ``; did you mean 'steps'?``, or the known names if no name is similar."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the exception's class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
