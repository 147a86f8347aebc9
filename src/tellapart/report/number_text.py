"""Formats numbers and lists of names for display."""

from __future__ import annotations

MINUS = "\u2212"


def format_number(x: float | None, places: int, *, signed: bool = False) -> str:
    """Formats ``x`` with a true minus sign and thousands separators. None and NaN become an en dash."""
    if x is None or x != x:
        return "–"
    text = f"{abs(x):,.{places}f}"
    negative = x < 0 and float(text.replace(",", "")) != 0
    return (MINUS if negative else "+" if signed else "") + text


def listed(names: list[str]) -> str:
    """Joins names, e.g. ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
