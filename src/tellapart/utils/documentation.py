"""Links to the pages under ``docs/``, for messages and help. The package does not contain these pages."""

from __future__ import annotations

_PAGES = "https://github.com/tellapart/tellapart/blob/main/docs"


def page_url(page: str) -> str:
    """Returns the URL of a documentation page, such as ``captioners.md``."""
    return f"{_PAGES}/{page}"
