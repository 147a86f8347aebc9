"""The last few results of a function of captions and references, for metrics that share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_KEPT = 8  # systems and pairs of them that an evaluation goes through, metric by metric
BLOCK = 8192  # pictures whose references are counted at a time; fewer are counted once and kept


def recent(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the last results by the arguments' content. Comparing lists of the same strings is quick.

    Of more texts than `BLOCK` only the last two results are kept, for these are large.
    """
    kept: list[tuple[tuple[Any, ...], T]] = []

    def remembered(*arguments: Any) -> T:
        for place, (known, result) in enumerate(kept):
            if known == arguments:
                kept.append(kept.pop(place))
                return result
        result = function(*arguments)
        # Copies, for a caller may change its lists later.
        kept.append((tuple(_copied(argument) for argument in arguments), result))
        del kept[: -_KEPT if len(arguments[0]) <= BLOCK else -2]
        return result

    remembered.__doc__ = function.__doc__
    return remembered


def _copied(argument: Any) -> Any:
    """A list, and the lists in it, apart from the caller's; what these hold are texts."""
    if not isinstance(argument, list):
        return argument
    return [inner.copy() if isinstance(inner, list) else inner for inner in argument]
