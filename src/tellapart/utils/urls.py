"""Distinguishes URLs from paths."""

from __future__ import annotations

import re

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Returns whether ``path`` is a URL such as ``s3://bucket/name``."""
    return ADDRESS.match(path) is not None
