"""Formats errors in files and requests that pydantic validates."""

from __future__ import annotations

from pydantic import ValidationError


def validation_message(error: Exception) -> str:
    """Returns the first problem in a `ValidationError` as "key: problem". For any other error, returns its message."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")]))
