"""The HTML page that ``tellapart check --report`` writes."""

from __future__ import annotations

from pathlib import Path

from tellapart.check.kinds import DEFECTS
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
    album, cards = Album(), []
    by_id = {item.id: item for item in dataset or ()}
    for key, own in check.worst():
        symbol = album.add_picture(by_id[key].picture) if key in by_id else None
        marked = {
            text: pieces(text, [(*span, one.kind) for one in own if one.text == text for span in one.spans])
            for text in dict.fromkeys(one.text for one in own if one.text)
        }
        cards.append((key, key in by_id, symbol, marked, list({(one.kind, one.detail): one for one in own}.values())))
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
