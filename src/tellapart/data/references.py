"""Cleans an item's references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.data.caption_values import MarkedText, caption_texts, with_flags
from tellapart.data.dropped import EMPTY, drop, has_text
from tellapart.utils.untrusted_text import clean_line


def clean_captions(captions: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns the captions in a value (`caption_texts`), each on one line and stripped.

    Drops empty captions and those that a VizWiz flag in ``record`` excludes, and counts them in
    `tellapart.data.dropped`. Raises a `UsageError` whose message begins with ``where``.
    """
    found = with_flags(caption_texts(captions, where), record or {}, where)
    if error := next((text.error for text in found if isinstance(text, MarkedText) and text.error), None):
        raise error
    texts = []
    for text in found:
        line = clean_line(text)
        if reason := getattr(text, "flag", "") or ("" if has_text(line) else EMPTY):
            drop(reason, where)
        else:
            texts.append(line)
    return tuple(texts)
