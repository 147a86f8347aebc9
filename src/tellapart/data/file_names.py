"""Recognizes file names that take the place of captions."""

from __future__ import annotations

import re

MEDIA = "(?:jpe?g|png|webp|gif|bmp|tiff?|heic|mp4|avi|webm|mov|mkv)"
_FILE = re.compile(rf"\S.*\.{MEDIA}", re.IGNORECASE)


def is_file_name(text: str) -> bool:
    """Returns whether a text is the name or path of a picture or clip."""
    return bool(_FILE.fullmatch(text))
