"""Writes a page of search results with thumbnails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.report.album import Album
from tellapart.report.template import template
from tellapart.search.index import Hit
from tellapart.types import Item
from tellapart.utils.outputs import write_output


@dataclass(frozen=True)
class QueryHits:
    """A query and its results. ``picture``: the id of the target picture; "" if unknown."""

    query: str
    hits: Sequence[Hit]
    picture: str = ""


def write_search_page(
    path: Path, title: str, found: Sequence[QueryHits], items: Sequence[Item], figures: Sequence[str] = ()
) -> None:
    """Writes a single HTML file that embeds each picture once. ``figures``: lines above the pictures.

    Raises the same errors as `write_output`.
    """
    album, shown = Album(), {hit.id for one in found for hit in one.hits}
    symbols = {item.id: album.add_picture(item.picture) for item in items if item.id in shown}
    page = template(Path(__file__).parent / "page.html")
    values = {"title": title, "results": found, "figures": figures, "symbols": symbols, "sprites": album.sprites()}
    write_output(path, page.render(values))
