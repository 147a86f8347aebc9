"""Splits a sequence, array or tensor into consecutive slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def blocks_of(values: T, size: int) -> Iterator[T]:
    """Yields consecutive slices of ``values`` with ``size`` elements each. The last slice may have fewer."""
    sliced: Any = values
    return (sliced[start : start + size] for start in range(0, len(sliced), size))
