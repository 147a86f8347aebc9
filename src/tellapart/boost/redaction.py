"""Redacts the API key in a server's replies."""

from __future__ import annotations

import base64
from functools import lru_cache

from tellapart.boost.types import REDACTED
from tellapart.utils.untrusted_text import clean_line

SHORTEST = 8  # shorter keys are placeholders (such as EMPTY for local servers) and can be ordinary words


def redact(text: str, key: str) -> str:
    """Replaces every substring that contains at least half of ``key`` with `REDACTED`, even if white space splits it.

    Also redacts the key if it is encoded in base64, alone or after other bytes, as in basic authentication.
    """
    if len(key) < SHORTEST:
        return text
    for form in (key, *_base64_forms(key)):
        text = _redact_form(text, form)
    return text


def readable(text: str, key: str) -> str:
    """Reduces a server's text to one clean line and redacts the API key, which some servers repeat."""
    return clean_line(redact(text, key))


@lru_cache(8)
def _base64_forms(key: str) -> tuple[str, ...]:
    """Returns how ``key`` can appear inside the base64 encoding of a longer text: one form for each offset modulo three
    bytes and each base64 alphabet.

    The forms omit characters that also encode neighbouring bytes.
    """
    data = key.encode("utf-8", "replace")
    forms = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        text = text[(0, 2, 3)[before] : 4 * ((before + len(data)) // 3)]
        forms += [text, text.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(forms))


def _redact_form(text: str, key: str) -> str:
    least = max(SHORTEST, len(key) // 2)
    windows = {key[start : start + least] for start in range(len(key) - least + 1)}
    packed = "".join(text.split())
    if not any(window in packed for window in windows):
        return text
    runs: list[tuple[int, int]] = []  # adjacent and overlapping windows are merged into one run
    for at in range(len(packed) - least + 1):
        if packed[at : at + least] in windows:
            start = runs.pop()[0] if runs and at <= runs[-1][1] else at
            runs.append((start, at + least))
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    parts, end = [], 0
    for start, stop in runs:
        parts += [text[end : places[start]], REDACTED]
        end = places[stop - 1] + 1
    return "".join(parts) + text[end:]
