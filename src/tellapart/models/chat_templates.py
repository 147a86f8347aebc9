"""Renders chat templates with limits on time, memory and output.

Chat templates are programs that come with the model. Transformers renders them in jinja's immutable sandbox, which
prevents code execution but limits neither the running time of loops nor the size of the output.
"""

from __future__ import annotations

import resource
import sys
from types import FrameType
from typing import Any

import jinja2

from tellapart.errors import TellapartError, UsageError

MOST_LINES = 1_000_000  # maximum number of Python lines run per rendering; real templates run a few hundred per message
MOST_BYTES = 2 << 30  # maximum growth of the process during rendering
MOST_CHARACTERS = 1_000_000  # maximum number of characters per text; the longest context windows hold a few times more
INSTEAD = "expected a template that formats the messages; use the template from the model's original release"


class RefusedMessages(UsageError):
    """Raised when a template rejects messages. ``words``: the template's error message."""

    def __init__(self, line: str, words: str) -> None:
        super().__init__(line)
        self.words = words


def rendered(name: str, processor: Any, turns: list[Any]) -> Any:
    """Renders a conversation, or a list of them, with the chat template of a processor or tokenizer.

    Raises `TellapartError` if the template runs too long, writes too much or fails, and `RefusedMessages` if the
    template itself rejects the messages. ``name``: the name of the model.
    """
    template = processor.chat_template
    if isinstance(template, str) and (reason := _huge(template)) is not None:
        raise TellapartError(f"{name}: its chat template contains {reason}; {INSTEAD}")
    left, most_bytes = MOST_LINES, _peak_bytes() + MOST_BYTES

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "call":  # count lines only in the template's frames and their callees, not those of the compiler
            inside = frame.f_code.co_filename == "<template>" or (frame.f_back and frame.f_back.f_trace is count)
            return count if inside else None
        left -= event == "line"
        if left < 0:
            raise _EndlessTemplate(f"ran for {MOST_LINES:,} steps without finishing")
        if _peak_bytes() > most_bytes:
            raise _EndlessTemplate(f"used {MOST_BYTES >> 20:,} MB of memory")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        texts = processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except _EndlessTemplate as error:
        raise TellapartError(f"{name}: its chat template {error}; {INSTEAD}") from None
    except jinja2.TemplateError as error:
        raise RefusedMessages(f"{name}: its chat template rejects these messages ({error})", str(error)) from None
    except Exception as error:  # template expressions can raise any exception
        cause = str(error).strip() or type(error).__name__
        raise TellapartError(f"{name}: its chat template failed ({cause[:200]}); {INSTEAD}") from None
    finally:
        sys.settrace(before)
    if (most := max(map(len, [texts] if isinstance(texts, str) else texts), default=0)) > MOST_CHARACTERS:
        raise TellapartError(f"{name}: its chat template writes {most:,} characters; {INSTEAD}")
    return texts


class _EndlessTemplate(Exception):
    """Raised inside a template that runs too long or takes too much memory."""


def _peak_bytes() -> int:
    """Returns this process's peak memory in bytes. A call takes about half a microsecond."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _huge(template: str) -> str | None:
    """Finds an expression that can take hours or all memory in one step: a power, or a number in the millions.

    Such a step cannot be interrupted, and jinja evaluates it even while compiling the template.
    """
    try:
        for _, kind, value in jinja2.Environment().lex(template):
            if (kind, value) == ("operator", "**"):
                return "powers (**)"
            if kind == "integer" and int(value.replace("_", ""), 0) > MOST_CHARACTERS:
                return value[:40]
    except (jinja2.TemplateError, ValueError):
        pass  # rendering raises the error
    return None
