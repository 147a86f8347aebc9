"""Untrusted text: cleaned when read, escaped when shown; and strict JSON, where a key that stands twice is an error.

Paths are never cleaned.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Lone surrogates (half of a UTF-16 pair, which UTF-8 cannot hold) and control characters that are no white space.
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
# Beyond these, what moves the cursor, ends a line, or turns the direction of writing, all of which forge a line.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what an id made of a path may not hold
_REASONS = re.compile(r"<think(?:ing)?>|\[THINK\]|◁think▷", re.IGNORECASE)
_REASONED = re.compile(r"</think(?:ing)?>|\[/THINK\]|◁/think▷", re.IGNORECASE)
LONGEST_LINE = 2000


def clean_text(text: str) -> str:
    """Returns text of a server, a file or a name as it may be kept: U+FFFD for lone surrogates, a space for control
    characters.

    White space of any kind stays, tabs and line breaks among it.
    """
    if text.isprintable():  # most captions: nothing to look for
        return text
    return _CONTROL.sub(" ", _SURROGATE.sub("\ufffd", text))


def path_id(path: str) -> str:
    """Returns the id of a file: its path, or, where this is not text, its path with percent signs as in a URL.

    Bytes that are no UTF-8, control characters and, in such a name, ``%`` itself become ``%XX``: an id fits into any
    file, and two files share one only where the name of the other has these percent signs. ``path`` is as Python gives
    it (`os.fsdecode`).
    """
    if not _NO_TEXT.search(path):
        return path
    return re.sub(f"%|{_NO_TEXT.pattern}", _percent, path)


def _percent(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    escaped = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else char.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in escaped)


def without_reasoning(text: str) -> str | None:
    """Returns what a model says after its reasoning; None where the reasoning does not end.

    Reasoning stands before ``</think>``, ``</thinking>``, ``[/THINK]`` or ``◁/think▷``; a chat template may have opened
    it. Text without any of these is whole.
    """
    said = _REASONED.split(text)[-1]
    return None if _REASONS.search(said) else said.strip()


def broken(text: str) -> str | None:
    """Returns what `clean_text` would change, in a few words; None for text that is clean."""
    if text.isprintable():
        return None
    if _SURROGATE.search(text):
        return "broken text (a lone surrogate)"
    return "broken text (control characters)" if _CONTROL.search(text) else None


def for_terminal(text: str) -> str:
    r"""Returns text as a terminal may show it: control characters, so escape sequences too, as ``\x1b``; line breaks
    stay.
    """
    return text if text.isprintable() else _HIDDEN.sub(_escaped, text)


def single_line(text: str) -> str:
    """Returns a message on one line of at most `LONGEST_LINE` characters, fit for a terminal."""
    line = for_terminal(" ".join(text.split()))
    if len(line) <= LONGEST_LINE:
        return line
    kept = LONGEST_LINE // 2
    return f"{line[:kept]} … ({len(line) - 2 * kept:,} characters) … {line[-kept:]}"


def json_text(value: Any) -> str:
    """Returns JSON on one line that any terminal, pipe and parser takes: what `for_terminal` escapes is ``\\u…``
    here.
    """
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, but a `ValueError` too for an object with the same key twice, where Python would keep the last one,
    and for text that is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        shown = double if len(double) <= 60 else double[:60] + "…"
        raise ValueError(f"the key {json.dumps(shown, ensure_ascii=False)} is in one object twice; keep one of the two")
    return found
