"""User code by dotted path: ``my.module:factory`` is imported and called, where that is allowed.

A recipe or a model folder may come from anybody, so the code that it names does not run for that reason alone. It runs
where the command line names it too (as a model, in ``--set``, or with ``--allow-code my.module:factory``), where a
caller in Python allows it (`allow_code`), or where an installed package offers it as an entry point of one of the
`GROUPS`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from tellapart.errors import UsageError
from tellapart.utils.registry import Entry

Kind = Literal["captioner", "scorer", "reward", "metric"]
GROUPS: Mapping[Kind, str] = {
    "captioner": "tellapart.captioners",
    "scorer": "tellapart.scorers",
    "reward": "tellapart.rewards",
    "metric": "tellapart.metrics",
}
PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
OPTION = "--allow-code"
_allowed: set[str] = set()


def is_dotted(name: str) -> bool:
    """Returns whether this reads as ``module:factory``."""
    return re.match(PATTERN, name) is not None


def allow_code(*paths: str) -> None:
    """Allow these ``module:factory`` to run in this process. Raises `UsageError` for another form."""
    for path in paths:
        if not is_dotted(path):
            raise UsageError(f"{OPTION} '{path}' is no code; expected module:factory, as in {OPTION} my_captioner:make")
    _allowed.update(paths)


def allow_named_in(arguments: Iterable[str]) -> None:
    """Allow every ``module:factory`` in the arguments of a command line: the user typed it."""
    for argument in arguments:
        _allowed.update(re.findall(r"(?<![\w./])[A-Za-z_][\w.]*:[A-Za-z_]\w*", argument))


def allowed_code() -> list[str]:
    """Returns what is allowed to run in this process, for processes that do its work."""
    return sorted(_allowed)


def installed(kind: Kind) -> dict[str, str]:
    """The captioners, scorers or rewards of installed packages: ``module:factory`` by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=GROUPS[kind])}


def code_path(name: str, kind: Kind) -> str | None:
    """The ``module:factory`` behind a name: itself, or that of an installed entry point; None for any other name."""
    if name == "scenes" or Path(name).exists():
        return None
    if is_dotted(name):
        return name
    return installed(kind).get(name) if re.match(r"^\w[\w.-]*$", name) else None


def check_allowed(path: str, kind: Kind, key: str) -> None:
    """Raises `UsageError`, with the option to type, where only ``key`` asks for ``path`` to run."""
    if path not in _allowed and path not in installed(kind).values():
        raise UsageError(
            f"{key} asks to run code, '{path}', which only the command line and installed packages may name; if you "
            f"trust it, add {OPTION} {path} to the command"
        )


def load_allowed(path: str, kind: Kind, key: str) -> Any:
    """Returns what ``module:name`` names, imported; ``key`` is what to call it in a message.

    Raises `UsageError` of one line where it is not allowed to run (`check_allowed`) or there is no such module or name.
    """
    check_allowed(path, kind, key)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{key}: no module '{error.name}'; expected one that python can import; "
            "type: PYTHONPATH=FOLDER before the command"
        ) from None
    except AttributeError:
        raise UsageError(f"{key}: module {module} has no '{name}'") from None
    except Exception as error:
        raise UsageError(f"{key} cannot be imported: {one_line(error)}") from error


def call_factory(path: str, kind: Kind, key: str, options: Mapping[str, Any]) -> Any:
    """Returns what ``module:factory`` makes of ``options``; ``key`` is what to call it in a message.

    Raises `UsageError` of one line where it cannot be loaded (`load_allowed`) or fails.
    """
    factory = load_allowed(path, kind, key)
    if isinstance(factory, Entry):
        factory = factory.factory
    try:
        return factory(**options)
    except Exception as error:
        call = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise UsageError(f"{key}: its call ({call}) failed: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
