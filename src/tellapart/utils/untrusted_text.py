"""Cleans untrusted text of lone surrogates and control characters."""

from __future__ import annotations

import re

# Lone surrogates (half of a UTF-16 pair, which UTF-8 cannot encode) and control characters that are not white space.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


def clean_text(text: str) -> str:
    """Cleans untrusted text: replaces lone surrogates with U+FFFD and control characters with spaces.

    Keeps all white space, including tabs and line breaks.
    """
    if text.isprintable():  # true of most captions
        return text
    return _CONTROL.sub(" ", _SURROGATE.sub("\ufffd", text))


def broken(text: str) -> str | None:
    """Briefly describes what `clean_text` would change. Returns None for clean text."""
    if text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "broken text (a lone surrogate)"
    return "broken text (control characters)" if _CONTROL.search(text) else None


def clean_line(text: str) -> str:
    """Cleans untrusted text like `clean_text`, and joins its words with single spaces into one line."""
    return " ".join(clean_text(text).split())
