"""An API key that a server repeats is struck out, whole or in part, before anything is cut, kept or shown."""

from __future__ import annotations

REDACTED = "[API key]"
SHORTEST = 8  # a shorter key is a placeholder, such as the EMPTY of servers at home: words of captions are like it


def redact(text: str, key: str) -> str:
    """``text`` with `REDACTED` for every run of at least half of ``key``, also where white space splits it."""
    if len(key) < SHORTEST:
        return text
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
    """(start, end) of every run of ones."""
    runs, at = [], marks.find(1)
    while at >= 0:
        end = marks.find(0, at)
        end = len(marks) if end < 0 else end
        runs.append((at, end))
        at = marks.find(1, end)
    return runs
