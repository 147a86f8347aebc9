"""Memoization of computed values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Memo:
    """Stores computed values by key."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Returns the key's value. Computes it on the first call."""
        if key not in self._values:
            self._values[key] = compute()
        return cast(T, self._values[key])
