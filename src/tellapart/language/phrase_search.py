"""Finds phrases in texts."""

from __future__ import annotations

import re


def has_phrase(text: str, phrase: str) -> bool:
    """Returns whether a text contains a phrase as whole words, ignoring case."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None
