"""Strict JSON parsing: duplicate keys are an error."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, but a `ValueError` too for an object with the same key twice, where Python would keep the last one,
    and for text that is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        shown = double if len(double) <= 60 else double[:60] + "…"
        raise ValueError(f"the key {json.dumps(shown, ensure_ascii=False)} is in one object twice; keep one of the two")
    return found
