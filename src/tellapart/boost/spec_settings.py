"""Reads the settings in a backend's specification, such as ``openai:MODEL@URL?key=value``."""

from __future__ import annotations

from urllib.parse import unquote

from tellapart.errors import UsageError, nearest


def number_setting(settings: dict[str, str], key: str, default: float) -> float:
    """Returns a setting as a number. Raises `UsageError` if it is not a number of at least 0."""
    try:
        value = float(settings.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{key}={settings[key]}: expected a number of at least 0")
    return value


def spec_settings(text: str, spec: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Splits ``text`` into the part before ``?`` and the settings after it. Raises `UsageError` for unknown settings.

    spec: the whole specification, for error messages.
    """
    body, _, query = text.partition("?")
    values = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if key not in known:
            raise UsageError(f"{spec.partition('@')[0]}: unknown setting '{key}'{nearest(key, known)}")
        if not equals or not value:
            raise UsageError(f"{spec.partition('@')[0]}: expected key=value, got '{pair}'")
        values[key] = unquote(value)
    return body, values
