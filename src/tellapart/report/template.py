"""Loads page templates, which reject undefined names and, in HTML, escape all text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from tellapart import __version__

HERE = Path(__file__).parent
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


@cache
def template(path: Path) -> jinja2.Template:
    """Loads a page's template, which rejects undefined names; ``base.html`` is its frame.

    Templates in HTML escape all text; others escape none.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, HERE]),
        autoescape=path.suffix == ".html",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    environment.globals |= {"style": (HERE / "page.css").read_text(encoding="utf-8"), "version": __version__}
    return environment.get_template(path.name)


def printable(value: Any) -> Any:
    """Replaces characters that UTF-8 cannot encode with U+FFFD, because captions are untrusted."""
    if not isinstance(value, str):
        return value
    return _UNPRINTABLE.sub("\ufffd", value) if _UNPRINTABLE.search(value) else value
