"""A user's own parts by dotted path: ``my.module:factory`` is imported and called."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError

PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def is_dotted(name: str) -> bool:
    """Whether this reads as ``module:factory``."""
    return re.match(PATTERN, name) is not None


def made_by(path: str, key: str, options: Mapping[str, Any]) -> Any:
    """What ``module:factory`` makes of ``options``; ``key`` is what to call it in a message.

    Raises `UsageError` of one line where there is no such module or function, or it fails.
    """
    module, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{key}: no module '{error.name}'; expected one that python can import; "
            "type: PYTHONPATH=FOLDER before the command"
        ) from None
    except AttributeError:
        raise UsageError(f"{key}: module {module} has no '{name}'") from None
    except Exception as error:
        raise UsageError(f"{key} cannot be imported: {one_line(error)}") from error
    try:
        return factory(**options)
    except Exception as error:
        told = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise UsageError(f"{key}: its call ({told}) failed: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
