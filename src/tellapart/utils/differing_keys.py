"""Finds the keys in which two mappings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Returns the sorted keys that only one of two mappings contains or whose values differ."""
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
