"""Parses the options in a captioner's name, ``NAME?key=value&key=value``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.models.captioner_options import (
    Levels,
    prompt_of_detail,
)

STOP: Mapping[str, Callable[[str], Any]] = {"stop": str}  # option for captioners of every family
DETAIL: Mapping[str, Callable[[str], Any]] = {"detail": float}  # option for captioners with levels of detail


def parse_options(written: str, known: Mapping[str, Callable[[str], Any]], name: str) -> dict[str, Any]:
    """Parses ``key=value&key=value`` (see `quoted`). Raises `UsageError` for options that are not ``known``."""
    options: dict[str, Any] = {}
    for pair in filter(None, written.split("&")):
        key, equals, value = pair.partition("=")
        if key == "detail" and key not in known:
            prompt_of_detail((), 0.0, name)
        if key not in known or not equals:
            raise UsageError(
                f"{name}: unknown option '{pair}'{nearest(key, known) if known else '; this captioner has no options'}"
            )
        try:
            options[key] = known[key](parse_value(value))
        except ValueError:
            raise UsageError(f"{name}: {key} must be a number; got '{value}'") from None
    return options


def with_detail(typed: dict[str, Any], levels: Levels, name: str) -> dict[str, Any]:
    """Replaces the option ``detail`` with the prompt for that level of detail.

    Raises `UsageError` if both ``detail`` and ``prompt`` are given.
    """
    if "detail" not in typed:
        return typed
    if "prompt" in typed:
        raise UsageError(
            f"{name}: prompt and detail cannot be combined, because detail selects the prompt; remove prompt or detail"
        )
    rest = {key: value for key, value in typed.items() if key != "detail"}
    prompt = prompt_of_detail(levels, typed["detail"], name)
    return rest | ({"prompt": prompt} if prompt else {})


def parse_value(written: str) -> str:
    """Decodes a value that `quoted` encoded."""
    return written.replace("%26", "&").replace("%25", "%")


def quoted(value: str) -> str:
    """Encodes the value of an option for use in a captioner's name."""
    return value.replace("%", "%25").replace("&", "%26")
