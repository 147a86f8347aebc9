"""Lists names in messages: the first few of many."""

from __future__ import annotations

from collections.abc import Iterable


def few(names: Iterable[object], most: int = 3, separator: str = ", ") -> str:
    """Joins the first ``most`` of ``names`` and counts the rest, e.g. ``a, b, c and 5 more``."""
    texts = [str(name) for name in names]
    rest = len(texts) - most
    return separator.join(texts[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def preview_ids(keys: Iterable[str]) -> str:
    """Returns the first few ids for a message."""
    return few(map(repr, keys)) or "none"
