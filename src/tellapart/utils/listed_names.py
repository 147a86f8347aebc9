"""Lists names in messages: the first few of many, or the keys in which two mappings differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def few(names: Iterable[object], most: int = 3, separator: str = ", ") -> str:
    """Joins the first ``most`` of ``names`` and counts the rest, e.g. ``a, b, c and 5 more``."""
    texts = [str(name) for name in names]
    rest = len(texts) - most
    return separator.join(texts[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Returns the sorted keys that only one of two mappings contains or whose values differ."""
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]


def preview_ids(keys: Iterable[str]) -> str:
    """Returns the first few ids for a message."""
    return few(map(repr, keys)) or "none"
