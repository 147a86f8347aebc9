"""Redacts the API key in a server's replies."""

from __future__ import annotations

import base64
from functools import lru_cache

from tellapart.boost.types import REDACTED

SHORTEST = 8  # shorter keys are placeholders, such as EMPTY for local servers, and can be ordinary words


def redact(text: str, key: str) -> str:
    """Replaces every run of at least half of ``key`` with `REDACTED`, even if it is split by white space.

    Also redacts the key in base64, alone or after other bytes as in basic authentication.
    """
    if len(key) < SHORTEST:
        return text
    for form in (key, *_base64_forms(key)):
        text = _redact_form(text, form)
    return text


@lru_cache(8)
def _base64_forms(key: str) -> tuple[str, ...]:
    """Returns the forms of ``key`` inside base64 of a longer text, for each offset modulo three bytes and each
    alphabet.

    Omits letters that also encode neighbouring bytes.
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
    runs = {key[start : start + least] for start in range(len(key) - least + 1)}
    packed = "".join(text.split())
    if not any(run in packed for run in runs):
        return text
    secret = bytearray(len(packed))
    for run in runs:
        at = packed.find(run)
        while at >= 0:
            secret[at : at + least] = b"\1" * least
            at = packed.find(run, at + 1)
    places = [place for place, letter in enumerate(text) if not letter.isspace()]
    kept, end = [], 0
    for start, stop in _runs_of_ones(secret):
        kept += [text[end : places[start]], REDACTED]
        end = places[stop - 1] + 1
    return "".join(kept) + text[end:]


def _runs_of_ones(marks: bytearray) -> list[tuple[int, int]]:
    """Returns (start, end) of every run of ones."""
    runs, at = [], marks.find(1)
    while at >= 0:
        end = marks.find(0, at)
        end = len(marks) if end < 0 else end
        runs.append((at, end))
        at = marks.find(1, end)
    return runs
