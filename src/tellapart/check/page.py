"""The HTML page that ``tellapart check --report`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tellapart.check.kinds import DEFECTS, Finding
from tellapart.check.result import Check
from tellapart.data import Dataset
from tellapart.report.album import Album
from tellapart.report.marked_text import pieces
from tellapart.report.template import template as page_template
from tellapart.utils.outputs import write_output


def write_check_page(check: Check, path: Path, command: str, dataset: Dataset | None) -> None:
    """Writes a self-contained HTML page with the kinds of defects and the fifty worst captions and pictures.

    ``command``: the command that reproduces the page.
    """

    album = Album()
    by_id = {item.id: item for item in dataset} if dataset is not None else {}
    cards = []
    for key, own in check.worst():
        item = by_id.get(key)
        symbol = album.add_picture(item.picture) if item is not None else None
        marked = {one.text: _pieces(one.text, own) for one in own if one.text}
        cards.append((key, item is not None, symbol, marked, own))
    page = page_template(Path(__file__).parent / "check.html").render(
        title=check.headline(),
        check=check,
        rows=check.rows(),
        cards=cards,
        kinds=DEFECTS,
        sprites=album.sprites(),
        command=command,
    )
    write_output(path, page)


def _pieces(text: str, own: Sequence[Finding]) -> Any:

    return pieces(text, [(start, end, one.kind) for one in own if one.text == text for start, end in one.spans])
