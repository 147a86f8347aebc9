"""Keys and values of recipes that were renamed. The old names keep working, each with a one-line warning.

To rename a key, rename the field, give it ``serialization_alias="OLD"`` (fingerprints are made over the names of 0.1,
see `training.fingerprint`), and add a line to `RENAMED_KEYS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.messages import say

# The old key, after the keys of the tables that it stands in, to the new one. A list of tables has no index here.
# Where a table's ``kind`` decides which keys it has, the kind follows the table: a plug-in's keys are its own.
RENAMED_KEYS: dict[tuple[str, ...], str] = {
    ("training", "accumulate"): "gradient_accumulation_steps",
    ("training", "checkpointing"): "gradient_checkpointing",
    ("training", "clip_norm"): "max_grad_norm",
    ("training", "optimiser"): "optimizer",
    ("evaluation", "judges"): "eval_scorers",
    ("objective", "kind=smile", "mle"): "mle_weight",
    ("objective", "kind=smile", "first"): "first_token",
    ("objective", "kind=reinforce", "normalise"): "length_normalization",
    ("objective", "kind=reinforce", "rewards", "kind=self_retrieval", "among"): "candidates",
}
# A key (by its new name) to its renamed values, old to new. A field with such a value needs a serializer that writes
# the old one where ``info.by_alias`` is set.
RENAMED_VALUES: dict[tuple[str, ...], dict[str, str]] = {
    ("objective", "kind=reinforce", "rewards", "kind"): {"own": "custom"},
}

_warned: set[str] = set()


def upgrade(
    table: dict[str, Any], source: str, *, warn: bool = True, onto: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A copy of a recipe's plain table under today's keys and values.

    ``onto``: the recipe that the table overrides, which says the ``kind`` of a table that does not say its own. Warns
    of each old name once in a process, in a line that starts with ``source``. Raises `UsageError` where a table has a
    key under both names.
    """

    def warn_of(old: str, new: str) -> None:
        if warn and old not in _warned:
            _warned.add(old)
            say(f"{source}: {old} is deprecated; use {new}")

    def renamed_key(value: dict[str, Any], path: tuple[str, ...], old: str) -> str:
        new = RENAMED_KEYS.get((*path, old), old)
        if new != old:
            if new in value:
                raise UsageError(f"{source}: '{dotted(*path, old)}' is the old name of '{new}'; leave it out")
            warn_of(f"'{dotted(*path, old)}'", f"'{dotted(*path, new)}'")
        return new

    def renamed_value(value: Any, path: tuple[str, ...]) -> Any:
        new = RENAMED_VALUES.get(path, {}).get(value) if isinstance(value, str) else None
        if new is None:
            return value
        warn_of(f"{dotted(*path)} = '{value}'", f"'{new}'")
        return new

    def upgraded(value: Any, path: tuple[str, ...], onto: Any) -> Any:
        if isinstance(value, list | tuple):
            return [upgraded(entry, path, None) for entry in value]
        if not isinstance(value, dict):
            return renamed_value(value, path)
        under = onto if isinstance(onto, Mapping) else {}
        kind = value.get("kind", under.get("kind"))
        inside = (*path, f"kind={kind}") if isinstance(kind, str) else path
        found = {}
        for old, inner in value.items():
            new = renamed_key(value, inside, old)
            found[new] = upgraded(inner, (*(path if new == "kind" else inside), new), under.get(new))
        return found

    upgraded_table: dict[str, Any] = upgraded(table, (), onto)
    return upgraded_table


def dotted(*path: str) -> str:
    """A path as a person types it."""
    return ".".join(part for part in path if "=" not in part)
