"""Where messages and help send readers: the pages under ``docs/``, which the package does not contain."""

from __future__ import annotations

_PAGES = "https://github.com/tellapart/tellapart/blob/main/docs"


def page_url(page: str) -> str:
    """Returns the URL of a documentation page, such as ``captioners.md``."""
    return f"{_PAGES}/{page}"
