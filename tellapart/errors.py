"""Errors that a user can mend: what was found, what was expected, what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TellapartError(Exception):
    """One clear line for the user; the command ends with ``exit_code`` and no traceback."""

    exit_code = 1


class UsageError(TellapartError):
    """The command, a recipe or a specification is wrong."""

    exit_code = 2


class PictureError(TellapartError):
    """A picture that cannot be read. Long jobs count it and go on."""


class MissingExtra(TellapartError):
    """A part that is not installed, with the line that installs it."""

    exit_code = 2

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an extra that is not installed; type: pip install 'tellapart[{extra}]'")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'steps'?``, or what is known where nothing is near."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(known)}"
