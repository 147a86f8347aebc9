"""Renders chat templates, which are programs that come with a model's folder, within bounds.

Transformers renders them in jinja's immutable sandbox. That keeps them from running code, and bounds neither how long
their loops run nor how much they write.
"""

from __future__ import annotations

import resource
import sys
from types import FrameType
from typing import Any

import jinja2

from tellapart.errors import TellapartError, UsageError

MOST_LINES = 1_000_000  # of Python that one rendering runs; templates of known models run some hundreds per message
MOST_BYTES = 2 << 30  # by which the process may grow meanwhile
MOST_CHARACTERS = 1_000_000  # of one text; contexts of the longest models hold a few times as many
INSTEAD = "expected a template that writes the messages; take the one of the model's own release"


class RefusedMessages(UsageError):
    """Raised for messages that a template refuses; ``words``: its own."""

    def __init__(self, line: str, words: str) -> None:
        super().__init__(line)
        self.words = words


def rendered(name: str, processor: Any, turns: list[Any]) -> Any:
    """Returns the text of a conversation, or of each in a list, by the chat template of a processor or tokenizer.

    Raises `TellapartError` where the template runs too long, writes too much or fails, and of those `RefusedMessages`
    where it says that such messages are not for it. ``name``: the model's.
    """
    template = processor.chat_template
    if isinstance(template, str) and (reason := _huge(template)) is not None:
        raise TellapartError(f"{name}: its chat template computes with {reason}; {INSTEAD}")
    left, most_bytes = MOST_LINES, _peak_bytes() + MOST_BYTES

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "call":  # of a template's own frames, and of what they call: to compile it takes many more
            inside = frame.f_code.co_filename == "<template>" or (frame.f_back and frame.f_back.f_trace is count)
            return count if inside else None
        left -= event == "line"
        if left < 0:
            raise _EndlessTemplate(f"ran {MOST_LINES:,} steps without an end")
        if _peak_bytes() > most_bytes:
            raise _EndlessTemplate(f"took {MOST_BYTES >> 20:,} MB of memory")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        texts = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except _EndlessTemplate as error:
        raise TellapartError(f"{name}: its chat template {error}; {INSTEAD}") from None
    except jinja2.TemplateError as error:
        raise RefusedMessages(f"{name}: its chat template refuses these messages ({error})", str(error)) from None
    except Exception as error:  # whatever an expression of it raises
        cause = str(error).strip() or type(error).__name__
        raise TellapartError(f"{name}: its chat template fails ({cause[:200]}); {INSTEAD}") from None
    finally:
        sys.settrace(before)
    if (most := max(map(len, [texts] if isinstance(texts, str) else texts), default=0)) > MOST_CHARACTERS:
        raise TellapartError(f"{name}: its chat template writes {most:,} characters; {INSTEAD}")
    return texts


class _EndlessTemplate(Exception):
    """Raised from inside a template that runs too long, or takes too much memory."""


def _peak_bytes() -> int:
    """The most memory that this process has held at once; half a microsecond."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _huge(template: str) -> str | None:
    """Finds in a template what may take hours or all memory in one step: a power, or a number of millions.

    Nothing stops such a step once it runs; jinja takes it already where it compiles the template.
    """
    try:
        for _, kind, value in jinja2.Environment().lex(template):
            if (kind, value) == ("operator", "**"):
                return "powers (**)"
            if kind == "integer" and int(value.replace("_", ""), 0) > MOST_CHARACTERS:
                return value[:40]
    except (jinja2.TemplateError, ValueError):
        pass  # rendering says so
    return None
