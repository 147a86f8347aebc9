"""The keys of ``eval --set KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tellapart.errors import UsageError, nearest
from tellapart.evaluation.options import EvalOptions


def keys() -> dict[str, tuple[Any, str]]:
    """Returns the keys that ``--set`` accepts, with their types and help."""
    hints = get_type_hints(EvalOptions, include_extras=True, localns={"Judge": Any})
    help_of = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: (hints[name].__origin__, text) for name, text in help_of.items() if isinstance(text, str)}


def key_rows() -> list[tuple[str, str, str]]:
    """Returns each key with its default and help, for ``--set list``."""
    defaults = EvalOptions()
    return [(name, str(getattr(defaults, name) or ""), text) for name, (_, text) in keys().items()]


def with_keys(options: EvalOptions, assignments: Sequence[str]) -> EvalOptions:
    """Returns the options after applying ``--set KEY=VALUE`` assignments. Raises `UsageError`."""

    values: dict[str, Any] = {}
    known = keys()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or name not in known:
            raise UsageError(f"--set {assignment}: expected KEY=VALUE{nearest(name, known)}")
        if name in values:
            raise UsageError(f"--set {name} is given twice; remove one of them")
        try:
            values[name] = TypeAdapter(known[name][0]).validate_python(text)
        except ValidationError as error:
            raise UsageError(f"--set {assignment}: {error.errors()[0]['msg']}") from error
    return replace(options, **values)
