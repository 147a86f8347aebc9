"""Warns if a model is used for pictures unlike its training pictures."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.types import Item
from tellapart.utils.messages import say_once

_FOR_PHOTOS = {"captioner": "Salesforce/blip-image-captioning-base", "scorer": "openai/clip-vit-base-patch32"}


def warn_outside_scenes(name: str | None, items: Sequence[Item], kind: str) -> None:
    """Warns once if ``scenes`` is used as a captioner or scorer for pictures that are not synthetic scenes."""
    if name is not None and name.partition("?")[0] == "scenes" and any(item.truth is None for item in items[:1]):
        say_once(
            f"warning: the {kind} 'scenes' was trained only on synthetic scenes, so its results on other pictures "
            f"are meaningless; for photos, use a {kind} such as {_FOR_PHOTOS[kind]}"
        )
