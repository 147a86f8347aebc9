"""Loads page templates. They reject undefined names, and HTML templates escape all text."""

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
    """Loads a page's template, which can extend ``base.html`` and rejects undefined names.

    HTML templates escape all text. Other templates escape nothing.
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
    """Replaces control characters and lone surrogates with U+FFFD, because captions are untrusted."""
    if not isinstance(value, str):
        return value
    return _UNPRINTABLE.sub("\ufffd", value) if _UNPRINTABLE.search(value) else value
