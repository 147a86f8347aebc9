"""Writes a page of search results with thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.errors import PictureError
from tellapart.report.template import template
from tellapart.search.index import Hit
from tellapart.types import Item
from tellapart.utils.outputs import write_output
from tellapart.utils.web.pictures import encode_picture

THUMBNAIL_SIDE = 320  # pixels of a picture's longer side


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

    Raises like `write_output`.
    """
    pictures = {item.id: item for item in items}
    shown = dict.fromkeys(hit.id for one in found for hit in one.hits)
    numbers = {id_: number for number, id_ in enumerate(shown)}
    images = [_image(pictures[id_]) for id_ in shown]
    results = [
        {
            "query": one.query,
            "picture": one.picture,
            "note": _note(one),
            "hits": [
                {"id": hit.id, "caption": hit.caption, "number": numbers[hit.id], "why": hit.reasons}
                for hit in one.hits
            ],
        }
        for one in found
    ]
    page = template(Path(__file__).parent / "page.html")
    write_output(path, page.render(title=title, results=results, figures=figures, images=images))


def _note(one: QueryHits) -> str:
    if not one.picture:
        return "" if one.hits else "No picture matches."
    if not one.hits:
        return f"looks for {one.picture}: no picture matches"
    rank = next((rank for rank, hit in enumerate(one.hits, 1) if hit.id == one.picture), None)
    return f"looks for {one.picture}: " + (f"number {rank}" if rank is not None else f"not among the {len(one.hits)}")


def _image(item: Item) -> str:
    try:
        data, kind = encode_picture(item.picture.image(), THUMBNAIL_SIDE)
    except PictureError:
        return ""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
