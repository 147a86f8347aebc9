"""Errors that a user can mend: what was found, what was expected, what to type."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterable


class TellapartError(Exception):
    """One line for the user; the command exits with ``exit_code`` and without a traceback."""

    exit_code = 1


class UsageError(TellapartError):
    """A wrong command, recipe or specification."""

    exit_code = 2


class PictureError(TellapartError):
    """An unreadable picture. Long jobs count it and continue."""


class MissingExtra(TellapartError):
    """A missing optional dependency, with the command that installs it."""

    exit_code = 2

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an extra that is not installed; type: pip install 'tellapart[{extra}]'")


def need_extra(extra: str, what: str, *packages: str) -> None:
    """Raises `MissingExtra` where one of the packages is not installed. Imports none of them."""
    for package in packages:
        try:
            found = importlib.util.find_spec(package)
        except ValueError:  # `sys.modules` has None for it
            found = None
        if found is None:
            raise MissingExtra(extra, what)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'steps'?``, or the known names where none is similar."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
