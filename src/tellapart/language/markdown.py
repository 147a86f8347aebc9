"""Reads a caption that a model formatted: removes Markdown and a JSON object around it, and joins its lines."""

from __future__ import annotations

import json
import re

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*\n(.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*•])[ \t]+", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<![\w*])(\*\*\*|\*\*|\*|__|`)(?=\S)(.+?)(?<=\S)\1(?![\w*])", re.DOTALL)
_CAPTION_FIELDS = ("caption", "description", "alt_text", "text", "answer")


def without_fence(text: str) -> str:
    """Returns the content of a Markdown fence (```` ```json ````), or the whole text if it has no fence."""
    return _FENCE.sub(lambda match: match[1], text).strip()


def tidy_lines(text: str, paragraphs: bool = False) -> str:
    """Joins the lines of a text into one line, or into one line per paragraph if ``paragraphs`` is set."""
    if not paragraphs:
        return " ".join(text.split())
    return "\n\n".join(filter(None, (tidy_lines(part) for part in re.split(r"\n\s*\n|\r\n\s*\r\n", text))))


def without_markdown(text: str) -> str:
    """Removes Markdown (fences, headings, list markers, emphasis) from a caption. Keeps paragraphs.

    If the text is a JSON object, fenced or not, the caption is its field ``caption`` (or ``description``, ``alt_text``,
    ``text`` or ``answer``), or its only string.
    """
    text = without_fence(text)
    if text.startswith("{") and (value := _json_caption(text)):
        text = value
    text = _LINE_MARK.sub("", text)
    while (plain := _EMPHASIS.sub(r"\2", text)) != text:
        text = plain
    return text


def _json_caption(text: str) -> str:
    """Returns the caption in a JSON object. Returns "" for other JSON, or if there are several strings with unknown
    names.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return ""
    fields = {str(name).lower(): field for name, field in value.items() if isinstance(field, str)}
    named = [fields[name] for name in _CAPTION_FIELDS if name in fields]
    return named[0] if named else next(iter(fields.values())) if len(fields) == 1 else ""
