"""Splits English text into sentences."""

from __future__ import annotations

import re

STOP = re.compile(r"[.!?]+(?=\s|$)")  # the end of a sentence


def sentences(text: str) -> list[str]:
    """Splits a text into sentences, each with its final punctuation."""
    ends = [stop.end() for stop in STOP.finditer(text)]
    parts = [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [part for part in parts if part]
