"""Applies settings such as ``--set training.steps=200`` to recipes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.models.decoding import READ
from tellapart.recipe.shipped_recipes import absolute
from tellapart.utils.messages import say


def apply_override(table: dict[str, Any], setting: str) -> None:
    """Applies a setting such as ``training.steps=200`` to the table. Values that are not valid TOML are plain text.

    Relative paths to other recipes are relative to the current folder. Raises `UsageError` if the setting is malformed.
    """
    key, equals, text = setting.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if not equals or not all(keys):
        raise UsageError(f"cannot parse --set {setting}; expected KEY=VALUE, for example --set training.steps=200")
    for parent in keys[:-1]:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {setting}: '{parent}' is a value, not a table, so it has no keys")
    last = keys[-1]
    table[last] = parse_value(text.strip())
    if last in ("name", "new"):  # an existing model replaces a new one, and vice versa
        table.pop({"name": "new", "new": "name"}[last], None)
    if keys[-2:] == ["decoding", "kind"]:
        leave_unread(table, setting)


def leave_unread(decoding: dict[str, Any], setting: str) -> None:
    """Removes the settings from a ``decoding`` table that its new kind does not use, and prints them."""
    read = READ.get(decoding["kind"]) if isinstance(decoding["kind"], str) else None
    for name in sorted(set().union(*READ.values()) - set(read)) if read is not None else ():
        if name in decoding:
            say(f"--set {setting}: ignored {name} = {decoding.pop(name)}, which this kind of decoding does not use")


def parse_value(text: str) -> Any:
    """Parses a setting's value, and resolves recipe names to absolute paths."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, list):
        return [absolute(entry, Path()) if isinstance(entry, str) else entry for entry in value]
    return absolute(value, Path()) if isinstance(value, str) else value
