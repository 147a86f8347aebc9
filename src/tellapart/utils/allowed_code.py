"""Decides which user code may run; `code_loading` runs it. Code is named as ``module:factory``.

Recipes and model folders may come from anyone, so code that is named in them does not run automatically. It runs only
if the command line also names it (as a model, in ``--set``, or with ``--allow-code my.module:factory``), if a Python
caller allows it (`allow_code`), or if an installed package offers it as an entry point (of its `Kind`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

from tellapart.errors import UsageError

Kind = Literal["captioner", "scorer", "reward", "metric"]
PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
OPTION = "--allow-code"
_allowed: set[str] = set()


def is_dotted(name: str) -> bool:
    """Returns whether a name has the form ``module:factory``."""
    return re.match(PATTERN, name) is not None


def allow_code(*paths: str) -> None:
    """Allows these ``module:factory`` paths to run in this process. Raises `UsageError` for any other form."""
    for path in paths:
        if not is_dotted(path):
            raise UsageError(f"{OPTION} '{path}': expected module:factory, such as {OPTION} my_captioner:make")
    _allowed.update(paths)


def allow_named_in(arguments: Iterable[str]) -> None:
    """Allows every ``module:factory`` in the arguments of a command line, because the user typed it."""
    for argument in arguments:
        _allowed.update(re.findall(r"(?<![\w./])[A-Za-z_][\w.]*:[A-Za-z_]\w*", argument))


def allowed_code() -> list[str]:
    """Returns the code that is allowed to run in this process, to pass on to its worker processes."""
    return sorted(_allowed)


def installed(kind: Kind) -> dict[str, str]:
    """Returns the captioners, scorers, rewards or metrics of installed packages, as a dict from name to
    ``module:factory``.
    """
    return {entry.name: entry.value for entry in entry_points(group=f"tellapart.{kind}s")}


def code_path(name: str, kind: Kind) -> str | None:
    """Returns the ``module:factory`` that a name stands for: the name itself, or the value of an installed entry point.

    Returns None for other names.
    """
    if name == "scenes" or Path(name).exists():
        return None
    if is_dotted(name):
        return name
    return installed(kind).get(name) if re.match(r"^\w[\w.-]*$", name) else None


def check_allowed(path: str, kind: Kind, key: str) -> None:
    """Raises a `UsageError` that says what to type if ``path``, which ``key`` requests, is not allowed to run."""
    if path not in _allowed and path not in installed(kind).values():
        raise UsageError(
            f"{key} requests to run the code '{path}', but only the command line and installed "
            f"packages may do so; if you trust it, add {OPTION} {path} to the command"
        )
