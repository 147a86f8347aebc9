"""Lists texts that a person should check: as records, or on an HTML page that accepts and edits them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from tellapart.errors import PictureError
from tellapart.purposes.lists import text_record
from tellapart.purposes.texts import Edited
from tellapart.report.template import template
from tellapart.types import Item
from tellapart.utils.files import write_output


def review_lines(
    items: Sequence[Item],
    written: Mapping[str, str],
    edited: Mapping[str, Edited],
    found: Mapping[str, Sequence[tuple[str, str]]],
) -> list[dict[str, Any]]:
    """Returns a record of each picture that a person should check, those with the most doubts first.

    found: further findings by id, in addition to `Edited.doubts`, as (kind, detail).
    """
    records = []
    for item in items:
        one = edited.get(item.id, Edited("", (("no text", "no caption"),)))
        doubts = [*one.doubts, *found.get(item.id, ())]
        if doubts and not one.accepted:
            records.append(
                {"id": item.id, "caption": one.text, "written": written.get(item.id, "")}
                | {"doubts": [{"kind": kind, "detail": detail} for kind, detail in doubts]}
            )
    return sorted(records, key=lambda record: -len(record["doubts"]))


def write_review_page(
    path: Path,
    out: Path,
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    records: Sequence[Mapping[str, Any]],
    characters: int,
) -> None:
    """Writes an HTML page on which a person accepts or edits texts by keyboard; the page saves a new ``out``.

    records: the result of `review_lines`. Pictures are stored in a folder beside the page, with sides of at most
    `PAGE_SIDE` pixels.
    """

    asked = {str(record["id"]) for record in records}
    rows = [
        text_record(Path(), item, one) if one.text or one.accepted else {"id": item.id, "caption": ""}
        for item in items
        if (one := edited.get(item.id, Edited(""))).text or one.accepted or item.id in asked
    ]
    folder = path.with_name(f"{path.stem}.pictures")
    shown = {item.id: _thumbnail(item, folder, number) for number, item in enumerate(items) if item.id in asked}
    content = {"file": out.name, "characters": characters, "rows": rows, "doubtful": records, "pictures": shown}
    here = Path(__file__).parent
    script = (here / "alt_text.js").read_text(encoding="utf-8")
    page = template(here / "alt_text.html").render(
        content=json.dumps(content).replace("<", "\\u003c"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        count=len(records),
        file=out.name,
    )
    write_output(path, page)


PAGE_SIDE = 640


def _thumbnail(item: Item, folder: Path, number: int) -> str:
    """Writes a small copy of a picture; returns its URL relative to the page, "" if the picture cannot be read."""
    try:
        image = item.picture.image()
    except PictureError:
        return ""
    image.thumbnail((PAGE_SIDE, PAGE_SIDE), Image.Resampling.LANCZOS)
    target = folder / f"{number:06d}.jpg"
    write_output(target, lambda new: image.save(new, "JPEG", quality=80))
    return f"{quote(folder.name)}/{target.name}"
