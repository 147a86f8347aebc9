"""Caches the last few results of a function of captions and references, so that metrics can share them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
_KEPT = 8  # number of systems and pairs that an evaluation visits for each metric
_MANY_TEXTS = 8192


def recent(function: Callable[..., T]) -> Callable[..., T]:
    """Decorator that caches a function's last results, keyed by the content of its arguments. Comparing lists of
    identical string objects is fast.

    For more than 8,192 texts, only the last two results are kept, because they are large.
    """
    kept: list[tuple[tuple[Any, ...], T]] = []

    @wraps(function)
    def remembered(*arguments: Any) -> T:
        for place, (known, result) in enumerate(kept):
            if known == arguments:
                kept.append(kept.pop(place))
                return result
        result = function(*arguments)
        # Copies, because a caller may modify its lists later.
        kept.append((tuple(_copied(argument) for argument in arguments), result))
        del kept[: -_KEPT if len(arguments[0]) <= _MANY_TEXTS else -2]
        return result

    return remembered


def _copied(argument: Any) -> Any:
    """Copies a list of strings, or a list of lists of strings."""
    if not isinstance(argument, list):
        return argument
    return [inner.copy() if isinstance(inner, list) else inner for inner in argument]
