"""Parses the options in a captioner's name, ``NAME?key=value&key=value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.models.encoded_options import unquoted
from tellapart.models.saved_options import Levels
from tellapart.utils.documentation import page_url


def parse_options(
    written: str, known: Mapping[str, Callable[[str], Any]], name: str, levels: Levels = ()
) -> dict[str, Any]:
    """Parses ``key=value&key=value`` (see `models.encoded_options`). Replaces the option ``detail`` with the prompt of
    that level.

    known: maps each option to the parser of its value. Raises `UsageError` for unknown options and invalid values.
    """
    options: dict[str, Any] = {}
    names = [*known, "detail"] if levels else list(known)
    for pair in filter(None, written.split("&")):
        key, equals, value = pair.partition("=")
        parse = float if key == "detail" else known.get(key)
        if parse is None or not equals:
            raise UsageError(
                f"{name}: unknown option '{pair}'{nearest(key, names) if names else '; this captioner has no options'}"
            )
        try:
            options[key] = parse(unquoted(value))
        except ValueError:
            raise UsageError(f"{name}: {key} must be a number; got '{value}'") from None
    if (detail := options.pop("detail", None)) is not None:
        if levels and "prompt" in options:
            raise UsageError(
                f"{name}: prompt and detail cannot be combined, because detail selects the prompt; remove prompt or "
                "detail"
            )
        if prompt := prompt_of_detail(levels, detail, name):
            options["prompt"] = prompt
    return options


def prompt_of_detail(levels: Levels, detail: float, name: str) -> str:
    """Returns the prompt of the level nearest to ``detail``. If two levels are equally near, returns the first one's.

    Raises `UsageError` for a number outside [0, 1], and for a captioner that was not trained with levels of detail.
    """
    if not 0 <= detail <= 1:
        raise UsageError(f"{name}: detail is {detail:g}; expected a number from 0 (least detail) to 1 (most detail)")
    if not levels:
        raise UsageError(
            f"{name} was not trained with levels of detail; remove ?detail=, or train a captioner with "
            f"objective.detail ({page_url('concepts/truth.md')})"
        )
    return min(levels, key=lambda level: abs(level[0] - detail))[1]
