"""The marks with which a person keeps a text as it is, in a row's state and in the cells of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError

MARKS = ("accepted", "decorative")
# What spreadsheets in English, German, French, Spanish, Portuguese, Italian and Dutch write for true and for false.
TRUE_WORDS = frozenset(("true", "wahr", "vrai", "verdadero", "verdadeiro", "vero", "waar"))
FALSE_WORDS = frozenset(("", "false", "falsch", "faux", "falso", "onwaar"))


def is_marked(state: Mapping[str, Any]) -> bool:
    """Returns whether a person accepted the text, or marked the picture as needing no text."""
    return any(state.get(name) for name in MARKS)


def mark_of(value: object) -> bool:
    """Returns whether a field or cell is true, as ``TRUE``, or ``WAHR`` in a German spreadsheet.

    Raises ValueError for an unknown word, because a person's mark must not be lost.
    """
    word = str(value or "").strip().lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"'{value}', expected TRUE or FALSE")
    return word in TRUE_WORDS


def marks_in(cells: Mapping[str, str], place: str) -> tuple[str, ...]:
    """Returns the `MARKS` in a table's row. Raises `UsageError` for an unknown word. ``place``: for the message."""
    marks = list[str]()
    for name in MARKS:
        try:
            marks += [name] if mark_of(cells.get(name)) else []
        except ValueError as error:
            raise UsageError(f"{place}: {name} is {error}; fix the cell") from None
    return tuple(marks)
