"""The ``key=value`` options of a data specification."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tellapart.data.splits import normalize_split
from tellapart.errors import UsageError
from tellapart.utils.comma_lists import comma_list


@dataclass(frozen=True)
class Options:
    """The ``key=value`` pairs of a specification, as text. ``spec`` is used in messages."""

    spec: str
    values: dict[str, str] = field(default_factory=dict)

    def text(self, key: str, default: str = "") -> str:
        """Returns the value as written."""
        return self.values.get(key, default)

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        """Returns an integer of at least ``least``. Raises `UsageError`."""
        written = self.values.get(key)
        if written is None:
            return default
        if not re.fullmatch(r"[0-9](_?[0-9]){,99}", written) or int(written) < least:
            raise UsageError(f"{self.spec}: expected {key} to be an integer of at least {least}, got {written}")
        return int(written)

    def number(self, key: str, default: float) -> float:
        """Returns a finite number. Raises `UsageError`."""
        written = self.values.get(key)
        try:
            value = default if written is None else float(written)
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            raise UsageError(f"{self.spec}: expected {key} to be a number, got {written}")
        return value

    @property
    def splits(self) -> frozenset[str]:
        """Returns the standard names of the requested splits. An empty set means all splits."""
        return frozenset(map(normalize_split, comma_list(self.text("split"))))
