"""Strict JSON, without duplicate keys, non-finite numbers, and characters that could forge a line in a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tellapart.utils.terminal_text import HIDDEN


def json_text(value: Any) -> str:
    """Formats JSON on one line, safe for any terminal, pipe and parser.

    Escapes the same characters as `for_terminal`, with ``\\u…``.
    """
    return HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def json_value(value: Any, places: int | None = None) -> Any:
    """Converts a value for JSON: non-finite numbers to null, NumPy numbers to Python numbers, tuples to lists,
    dataclasses to objects.

    ``places``: decimal places to round floats to; None disables rounding.
    """
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: json_value(inner, places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner, places) for inner in value]
    if hasattr(value, "dtype"):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if places is None else round(value, places)
    return value


def parse_json(text: str | bytes) -> Any:
    """Parses JSON like `json.loads`, but also raises `ValueError` for text that is nested too deeply and for duplicate
    keys, of which `json.loads` keeps the last.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        shown = double if len(double) <= 60 else double[:60] + "…"
        raise ValueError(
            f"the key {json.dumps(shown, ensure_ascii=False)} occurs twice in one object; remove one of them"
        )
    return table
