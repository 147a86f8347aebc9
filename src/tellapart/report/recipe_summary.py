"""Selects the main entries of a run's recipe and formats them for display."""

from __future__ import annotations

import tomllib
from typing import Any

from tellapart.report.folder import RunFolder

# The most informative recipe entries. A details element on the page contains the whole recipe.
_SUMMARY_KEYS = ("name", "objective", "reward", "captioner", "scorer", "data", "steps", "epochs", "learning_rate", "lr",
            "batch", "batch_size", "samples", "baseline", "device")  # fmt: skip


def recipe_summary(run: RunFolder) -> dict[str, str]:
    """Returns the texts of the recipe's main entries by dotted key."""
    try:
        entries = _flatten(tomllib.loads(run.recipe or ""))
    except tomllib.TOMLDecodeError as error:
        run.gaps.append(f"recipe.toml is not valid TOML ({error}); it is shown as plain text.")
        return {}
    places = {key: [_SUMMARY_KEYS.index(part) for part in key.split(".") if part in _SUMMARY_KEYS] for key in entries}
    chosen = sorted((key for key, found in places.items() if found), key=lambda key: min(places[key]))
    return {key: entries[key] for key in chosen[:12]}


def _flatten(table: dict[str, Any], start: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{start}{key}.")
        elif text := entry_text(value):
            flat[f"{start}{key}"] = text
    return flat


def entry_text(value: Any) -> str:
    """Formats a recipe entry for readers. Separates list entries with commas and formats tables as ``kind, key value``.
    An empty list becomes "".
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        texts = [entry_text(entry) for entry in value]
        return ("; " if any(isinstance(entry, dict) for entry in value) else ", ").join(filter(None, texts))
    if isinstance(value, dict):
        named = {key: entry_text(entry) for key, entry in value.items()}
        return ", ".join(text if key in ("kind", "name") else f"{key} {text}" for key, text in named.items() if text)
    return str(value)
