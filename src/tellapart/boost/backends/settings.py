"""Values of a backend's settings, as the specification gives them."""

from __future__ import annotations

from tellapart.errors import UsageError


def number(settings: dict[str, str], key: str, default: float) -> float:
    """A setting that is a number of at least 0. Raises `UsageError`."""
    try:
        value = float(settings.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{key}={settings[key]} is not a number of at least 0")
    return value
