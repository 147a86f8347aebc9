"""Imports and calls ``module:factory``, if it is allowed to run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tellapart.errors import UsageError, error_line
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
        raise UsageError(f"{key} cannot be imported: {error_line(error)}") from error


def call_factory(path: str, kind: Kind, key: str, options: Mapping[str, Any]) -> Any:
    """Calls ``module:factory`` with ``options`` and returns the result. ``key``: what requests it, for messages.

    Raises a one-line `UsageError` if the factory cannot be loaded (`load_allowed`) or fails.
    """
    factory = load_allowed(path, kind, key)
    return call_with(factory.factory if isinstance(factory, Entry) else factory, key, options)


def call_with(factory: Callable[..., Any], key: str, options: Mapping[str, Any]) -> Any:
    """Calls ``factory`` with ``options`` and returns the result. Raises a one-line `UsageError` if it fails.

    ``key``: what requests it, for messages.
    """
    try:
        return factory(**options)
    except Exception as error:
        call = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise UsageError(f"{key}: the call ({call}) failed: {error_line(error)}") from error
