"""The frames of a clip, as pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image

from tellapart.data.pictures import is_clip, sample_frames
from tellapart.types import Item, Picture

if TYPE_CHECKING:
    from tellapart.scorers import Scorer


def frames_seen(item: Item, scorer: Scorer) -> int:
    """Returns how many frames the scorer sees: all frames of a scene's clip, ``frames`` of a clip file, or 1 for a
    picture.
    """
    if not is_clip(item.picture):
        return 1
    return int(getattr(item.picture, "length", scorer.frames))


@dataclass(frozen=True)
class Frame:
    """One frame of a clip, as a picture."""

    clip: Picture
    number: int
    count: int

    @property
    def name(self) -> str:
        return self.clip.name

    def key(self) -> str:
        return f"{self.clip.key()}-frame{self.number}of{self.count}"

    def image(self) -> Image.Image:
        return _frames(self.clip, self.count)[self.number]  # type: ignore[arg-type]  # clips are hashable


@lru_cache(maxsize=2)
def _frames(clip: Picture, count: int) -> list[Image.Image]:
    """Returns a clip's frames, cached so that consecutive calls decode the clip only once."""
    return sample_frames(clip, count)
