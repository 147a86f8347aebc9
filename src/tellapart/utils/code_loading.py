"""Imports and calls ``module:factory``, if it is allowed to run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError
from tellapart.utils.allowed_code import Kind, check_allowed
from tellapart.utils.registry import Entry


def load_allowed(path: str, kind: Kind, key: str) -> Any:
    """Imports ``module:name`` and returns the object. ``key``: what requests it, for messages.

    Raises a one-line `UsageError` if it is not allowed to run (`check_allowed`) or does not exist.
    """
    check_allowed(path, kind, key)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{key}: no module named '{error.name}'; expected an importable module; set "
            "PYTHONPATH=FOLDER before the command"
        ) from None
    except AttributeError:
        raise UsageError(f"{key}: module {module} has no attribute '{name}'") from None
    except Exception as error:
        raise UsageError(f"{key} cannot be imported: {one_line(error)}") from error


def call_factory(path: str, kind: Kind, key: str, options: Mapping[str, Any]) -> Any:
    """Calls ``module:factory`` with ``options`` and returns the result. ``key``: what requests it, for messages.

    Raises a one-line `UsageError` if the factory cannot be loaded (`load_allowed`) or fails.
    """
    factory = load_allowed(path, kind, key)
    if isinstance(factory, Entry):
        factory = factory.factory
    try:
        return factory(**options)
    except Exception as error:
        call = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise UsageError(f"{key}: the call ({call}) failed: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
