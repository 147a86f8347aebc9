"""Overrides of a recipe's keys from the command line: ``--set training.steps=200``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.models.decoding import READ
from tellapart.recipe.deprecated import upgrade
from tellapart.recipe.find import absolute
from tellapart.utils.messages import say


def apply_override(table: dict[str, Any], setting: str) -> None:
    """Set ``training.steps=200`` in the table. The value is read as TOML, or as plain text where it is not TOML.

    A relative path to another recipe is relative to the current folder. Old names of keys become today's, as in
    `deprecated.upgrade`. Raises `UsageError` for a malformed setting.
    """
    key, equals, text = setting.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if not equals or not all(keys):
        raise UsageError(f"cannot read --set {setting}; expected key=value, as in --set training.steps=200")
    override: Any = parse_value(text.strip())
    for name in reversed(keys):
        override = {name: override}
    override = upgrade(override, f"--set {setting}", onto=table)
    for _ in keys[:-1]:
        ((parent, override),) = override.items()
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {setting}: '{parent}' is a value, not a table")
    ((last, value),) = override.items()
    table[last] = value
    if last in ("name", "new"):  # naming a model replaces the description of a new one, and the reverse
        table.pop({"name": "new", "new": "name"}[last], None)
    if keys[-2:] == ["decoding", "kind"]:
        leave_unread(table, setting)


def leave_unread(decoding: dict[str, Any], setting: str) -> None:
    """Drop the settings of a table ``decoding`` that its new kind does not read, with a line."""
    read = READ.get(decoding["kind"]) if isinstance(decoding["kind"], str) else None
    for name in sorted(set().union(*READ.values()) - set(read)) if read is not None else ():
        if name in decoding:
            say(f"--set {setting}: {name} = {decoding.pop(name)} is not read by it, and is left out")


def parse_value(text: str) -> Any:
    """The value of a setting; names of recipes become absolute."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, list):
        return [absolute(entry, Path()) if isinstance(entry, str) else entry for entry in value]
    return absolute(value, Path()) if isinstance(value, str) else value
