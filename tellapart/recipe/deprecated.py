"""Keys and values of recipes that were renamed. The old names keep working, each with a one-line warning.

To rename a key, rename the field, give it ``serialization_alias="OLD"`` (fingerprints are made over the names of 0.1,
see `training.fingerprint`), and add a line to `RENAMED_KEYS`.
"""

from __future__ import annotations

from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.messages import say

# The old key, after the keys of the tables that it stands in, to the new one. A list of tables has no index here.
RENAMED_KEYS: dict[tuple[str, ...], str] = {
    ("training", "accumulate"): "gradient_accumulation_steps",
    ("training", "checkpointing"): "gradient_checkpointing",
    ("training", "clip_norm"): "max_grad_norm",
    ("training", "optimiser"): "optimizer",
    ("evaluation", "judges"): "eval_scorers",
}
# A key (by its new name) to its renamed values, old to new. A field with such a value needs a serializer that writes
# the old one where ``info.by_alias`` is set.
RENAMED_VALUES: dict[tuple[str, ...], dict[str, str]] = {}

_warned: set[str] = set()


def upgrade(table: dict[str, Any], source: str, *, warn: bool = True) -> dict[str, Any]:
    """A copy of a recipe's plain table under today's keys and values.

    Warns of each old name once in a process, in a line that starts with ``source``. Raises `UsageError` where a table
    has a key under both names.
    """

    def warn_of(old: str, new: str) -> None:
        if warn and old not in _warned:
            _warned.add(old)
            say(f"{source}: {old} is deprecated; use {new}")

    def renamed_key(value: dict[str, Any], path: tuple[str, ...], old: str) -> str:
        new = current(*path, old)[-1]
        if new != old:
            if new in value:
                raise UsageError(f"{source}: '{dotted(*path, old)}' is the old name of '{new}'; leave it out")
            warn_of(f"'{dotted(*path, old)}'", f"'{dotted(*path, new)}'")
        return new

    def upgraded(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {renamed_key(value, path, old): upgraded(inner, current(*path, old)) for old, inner in value.items()}
        if isinstance(value, list | tuple):
            return [upgraded(entry, path) for entry in value]
        if isinstance(value, str) and (new_value := RENAMED_VALUES.get(path, {}).get(value)) is not None:
            warn_of(f"{dotted(*path)} = '{value}'", f"'{new_value}'")
            return new_value
        return value

    upgraded_table: dict[str, Any] = upgraded(table, ())
    return upgraded_table


def current(*path: str) -> tuple[str, ...]:
    """A key's path with the new name of its last part; the parts before it have theirs."""
    return (*path[:-1], RENAMED_KEYS.get(path, path[-1]))


def dotted(*path: str) -> str:
    return ".".join(path)
