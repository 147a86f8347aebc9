"""Decodes base64-encoded pictures in the text of a record."""

from __future__ import annotations

import base64
import re
from typing import Any

# The first bytes of JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC and MP4 files in base64, including its URL-safe form.
_BASE64 = re.compile(
    r"data:(?:image|video)/[\w+.-]+;base64,[\w+/\s-]+=*|"
    r"(?:[/_]9j[/_]|iVBORw0KGgo|UklGR|R0lGOD|Qk|SUkqA|TU0AK|AAAA.GZ0eX)[\w+/\s-]{24,}=*",
    re.ASCII,
)


def is_base64(value: Any) -> bool:
    """Returns whether a value is a data URI, or a picture in base64 as in VLMEvalKit's tables."""
    return isinstance(value, str) and bool(_BASE64.fullmatch(value.strip()))


def decode_base64(text: str) -> bytes:
    """Decodes a text that `is_base64` accepts. Raises ValueError if it is damaged."""
    digits = "".join(text.rpartition(",")[2].split()).rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
