"""Splits lists that users write with commas."""

from __future__ import annotations


def comma_list(text: str) -> list[str]:
    """Returns the parts of a text between commas, without surrounding spaces and empty parts: ``a, b`` → a, b."""
    return [part for one in text.split(",") if (part := one.strip())]
