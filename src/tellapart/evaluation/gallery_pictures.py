"""Thumbnails of the pictures in a gallery."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tellapart.data.pictures import preview_image
from tellapart.errors import PictureError
from tellapart.types import Item


def save_pictures(folder: Path, sets: Mapping[str, Any], items: Iterable[Item]) -> dict[str, str]:
    """Saves thumbnails of a gallery's pictures in ``folder``/gallery and returns a mapping from id to file. A clip's
    thumbnail shows four frames.

    Skips pictures that cannot be read.
    """
    keys = dict.fromkeys(key for entry in sets["sets"] for key in (entry["target"], *entry["candidates"]))
    by_id = {item.id: item for item in items if item.id in keys}
    pictures = {}
    (folder / "gallery").mkdir(exist_ok=True)
    for number, key in enumerate(keys):
        try:
            image = preview_image(by_id[key].picture)
        except PictureError:
            continue
        small = max(image.size) <= 96  # small pixel art is kept as it is, because the page enlarges it
        name = f"{number:03d}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', key)[:60]}.{'png' if small else 'jpg'}"
        if not small:
            image.thumbnail((160, 160))
        image.save(folder / "gallery" / name, quality=85)
        pictures[key] = f"gallery/{name}"
    return pictures
