"""Makes text safe for a terminal.

Names, ids and captions are untrusted: escape sequences and rich markup in them are printed as text, never interpreted.
"""

from __future__ import annotations

import re
from typing import Any

import rich.console
import rich.segment

LONGEST_LINE = 2000
# Characters that can forge a line: cursor movement, line ends, changes of text direction, and other control characters.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def for_terminal(text: str) -> str:
    r"""Escapes control characters (and thus escape sequences) for a terminal, as in ``\x1b``. Keeps line breaks."""
    return text if text.isprintable() else HIDDEN.sub(_escaped, text)


def single_line(text: str) -> str:
    """Formats a message as one line of at most `LONGEST_LINE` characters for a terminal."""
    line = for_terminal(" ".join(text.split()))
    if len(line) <= LONGEST_LINE:
        return line
    kept = LONGEST_LINE // 2
    return f"{line[:kept]} … ({len(line) - 2 * kept:,} characters) … {line[-kept:]}"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def console(**options: Any) -> rich.console.Console:
    """Creates a rich console that prints markup and escape sequences as text. Takes the same options as `Console`."""

    class Plain(rich.console.Console):
        def render_str(self, text: str, **more: Any) -> Any:  # before rich measures its width
            return super().render_str(for_terminal(text), **more)

        def render(self, *arguments: Any, **more: Any) -> Any:
            for segment in super().render(*arguments, **more):
                yield segment if segment.control else rich.segment.Segment(for_terminal(segment.text), segment.style)

    return Plain(markup=False, emoji=False, highlight=False, **options)
