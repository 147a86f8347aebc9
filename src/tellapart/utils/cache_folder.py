"""Locates the cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns the cache folder, which may be deleted: ``$TELLAPART_CACHE``, or ``~/.cache/tellapart``."""
    return Path(os.environ.get("TELLAPART_CACHE") or "~/.cache/tellapart").expanduser()
