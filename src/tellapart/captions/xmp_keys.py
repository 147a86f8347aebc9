"""Suffixes of file names in the log, which tell the texts in an ``.xmp`` file apart by property and language."""

from __future__ import annotations

from tellapart.data.xmp import ALT, DEFAULT, LONG


def key_of(name: str, language: str) -> str:
    """Returns the suffix of a file's name in the log, for the text of a property in a language."""
    return "".join(["#long"] * (name == LONG) + [f"#{language}"] * (language != DEFAULT))


def part_of(key: str) -> tuple[str, str]:
    """Returns the property and the language that `key_of` encoded."""
    is_long = key == "#long" or key.startswith("#long#")
    return LONG if is_long else ALT, key.removeprefix("#long" if is_long else "").removeprefix("#") or DEFAULT
