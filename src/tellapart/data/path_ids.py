"""Derives the ids of files from their paths, which are percent-encoded if they are not valid text."""

from __future__ import annotations

import re

_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # characters that are not allowed in ids


def path_id(path: str) -> str:
    """Returns the id of a file: its path, percent-encoded as in a URL if it is not valid text.

    Encodes invalid UTF-8 and control characters as ``%XX``; in such paths, ``%`` is encoded too. The id can be written
    to any file. Two files have the same id only if one path literally contains the other's encoding. ``path``: a result
    of `os.fsdecode`.
    """
    if not _NO_TEXT.search(path):
        return path
    return re.sub(f"%|{_NO_TEXT.pattern}", _percent, path)


def _percent(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    escaped = bytes([code - 0xDC00]) if 0xDC80 <= code <= 0xDCFF else char.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in escaped)
