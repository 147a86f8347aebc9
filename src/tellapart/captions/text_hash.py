"""The hash by which the log identifies a text."""

from __future__ import annotations

import hashlib


def text_hash(text: str) -> str:
    """Returns 24 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
