"""Encodes, decodes and removes the options in a model's name, ``NAME?key=value&key=value``."""

from __future__ import annotations

from urllib.parse import unquote

from tellapart.models.names import is_server


def quoted(value: str) -> str:
    """Encodes the value of an option for the name of a model on this machine."""
    return value.replace("%", "%25").replace("&", "%26")


def unquoted(written: str) -> str:
    """Decodes a value that `quoted` encoded."""
    return written.replace("%26", "&").replace("%25", "%")


def without_option(name: str, key: str) -> tuple[str, str | None]:
    """Removes the option ``key`` from a model's name. Returns the remaining name and the option's value, or None if the
    option is absent.

    The values of server models are percent-encoded, and those of other models are encoded as in `quoted`.
    """
    bare, _, written = name.partition("?")
    pairs = list(filter(None, written.split("&")))
    rest = "&".join(pair for pair in pairs if not pair.startswith(f"{key}="))
    values = [pair.partition("=")[2] for pair in pairs if pair.startswith(f"{key}=")]
    decode = unquote if is_server(name) else unquoted
    return (f"{bare}?{rest}" if rest else bare), decode(values[-1]) if values else None
