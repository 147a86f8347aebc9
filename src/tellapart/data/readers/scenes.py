"""``scenes:DOMAIN``: synthetic scenes, generated without reading from disk.

``scenes:plain?split=test&n=500&seed=0&detail=0.3&family=5``: n scenes of the plain domain. ``detail`` is the
probability that a reference mentions a detail, and ``family`` the size of groups of scenes that differ in one
attribute. ``frames=4`` creates clips, and ``stills=true`` uses their frames as separate pictures. For defaults see
`tellapart.scenes.Scenes`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tellapart.data.dataset import ReadItems
from tellapart.data.options import Options
from tellapart.data.reader import READERS, Reader
from tellapart.data.skipped import Skipped
from tellapart.data.splits import normalize_split
from tellapart.errors import UsageError
from tellapart.scenes import Scenes
from tellapart.types import Item

INTEGER_KEYS = {
    "n": "number of scenes; default: 500",
    "seed": "random seed; default: 0",
    "size": "width and height in pixels",
    "family": "size of groups of scenes that differ in one attribute",
    "references": "number of references per scene",
    "frames": "number of frames per clip; default: 1 (a still picture)",
}
KEYS = {
    **INTEGER_KEYS,
    "detail": "probability that a reference mentions a detail, 0 to 1",
    "full": "`true`: references are full descriptions, the plainest wording first",
    "stills": "`true`: each frame of a clip is a separate picture",
}
DEFAULT_N = 500
MAX_CACHED = 10_000  # worlds with up to this many items are cached


def read(path: Path, options: Options) -> ReadItems:
    """Returns items whose ``truth`` is the scene itself. ``path`` is the domain's name."""
    if len(options.splits) > 1:
        raise UsageError(f"{options.spec}: scenes can only have one split at a time")
    settings: dict[str, Any] = {key: options.integer(key, 0) for key in INTEGER_KEYS if key in options.values}
    if "detail" in options.values:
        settings["detail"] = options.number("detail", 0.0)
    for split in options.splits:
        settings["split"] = "validation" if split == "val" else split  # the world's name for this split
    if str(path) not in ("", "."):
        settings["domain"] = str(path)
    if (full := options.text("full")) not in ("", "true"):
        raise UsageError(f"{options.spec}: full={full}: expected full=true; remove it to turn it off")
    if full:
        settings["full"] = True
    scenes, stills = Scenes(**{"n": DEFAULT_N, **settings}), options.text("stills")
    if stills not in ("", "true") or (stills and scenes.frames == 1):
        raise UsageError(
            f"{options.spec}: stills=true splits clips into frames, so it requires frames; use frames=4&stills=true"
        )
    make = items_of if len(scenes) <= MAX_CACHED else items_of.__wrapped__
    return make(tuple(sorted({"n": len(scenes), **settings}.items())), bool(stills)), Skipped()


@lru_cache(maxsize=8)
def items_of(settings: tuple[tuple[str, Any], ...], stills: bool) -> tuple[Item, ...]:
    """Returns the items, cached because one process may train many small models on the same world."""
    scenes = Scenes(**dict(settings))
    items = (item for scene in scenes for item in (scene.stills() if stills else [scene.item()]))
    return tuple(replace(item, split=normalize_split(item.split)) for item in items)


READERS.register(
    Reader(
        name="scenes",
        factory=read,
        help="synthetic scenes; the path is a domain",
        keys=KEYS,
        needs_path=False,
        layouts=(("synthetic scenes, generated without files", "`scenes:plain?split=test&n=500&seed=0`"),),
    )
)
