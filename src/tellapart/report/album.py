"""Embeds each picture on a page once, as a data URI, which the page refers to as ``<use href="#p0">``."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from PIL import Image

from tellapart.data.decode import open_image, to_rgb
from tellapart.data.pictures import FilePicture
from tellapart.errors import PictureError
from tellapart.types import Picture

# Pictures whose sides have at most this many pixels are stored as PNG and scaled without smoothing. Larger ones become
# JPEG.
CRISP_SIDE = 96
# Maximum size of all pictures on a page together, in base64 characters, and the side lengths in pixels to try until the
# pictures fit.
BUDGET = 3_800_000
SIDES = (288, 224, 176, 136, 104)


@dataclass(frozen=True)
class PageSprite:
    """One embedded picture. ``symbol`` is its id on the page, and ``uri`` contains its data."""

    symbol: str
    uri: str
    width: int
    height: int
    crisp: bool


@dataclass
class Album:
    """The pictures on a page. Call `add` for all files, then `sprites`. Embeds files with the same content once."""

    _symbols: dict[bytes, str] = field(default_factory=dict)  # of each picture's content

    def add(self, root: Path, name: str) -> str:
        """Adds the picture ``root``/``name`` and returns its symbol. Raises `PictureError` if it cannot be read."""
        inside = PurePosixPath(name.replace("\\", "/"))
        if inside.is_absolute() or ".." in inside.parts:
            raise PictureError(f"{name} is outside the run folder")
        return self.add_content(FilePicture(root / inside).read().data)

    def add_content(self, content: bytes) -> str:
        """Adds an encoded picture and returns its symbol. Raises `PictureError` if it cannot be decoded."""
        if content not in self._symbols:
            _open(content)  # raises errors here, where the caller still knows the picture's name
            self._symbols[content] = f"p{len(self._symbols)}"
        return self._symbols[content]

    def add_picture(self, picture: Picture) -> str | None:
        """Adds a drawn picture or a file and returns its symbol, or None if the picture cannot be read."""
        stream = io.BytesIO()
        try:
            picture.image().save(stream, "PNG")
            return self.add_content(stream.getvalue())
        except PictureError:
            return None

    def sprites(self) -> list[PageSprite]:
        """Returns all pictures at the largest size that the page's limit allows."""
        images = {symbol: _open(content) for content, symbol in self._symbols.items()}
        side = SIDES[0]
        while True:
            sprites = [_sprite(symbol, image, side) for symbol, image in images.items()]
            total = sum(len(sprite.uri) for sprite in sprites)
            if total <= BUDGET or side == SIDES[-1]:
                return sprites
            # A photo's size in bytes is roughly proportional to its area, so sides that would not fit are skipped.
            fitting = (s for s in SIDES if s < side and total * (s / side) ** 2 <= BUDGET)
            side = next(fitting, SIDES[-1])


def _open(content: bytes) -> Image.Image:
    """Decodes a picture to upright RGB and shrinks it to the largest side in `SIDES`. Drops the metadata, which can
    contain the location where a photo was taken.
    """
    with open_image(content, "picture") as image:
        image.draft("RGB", (SIDES[0], SIDES[0]))  # JPEG decoders can skip most of the work for a large photo
        upright = to_rgb(image)
    if max(upright.size) > CRISP_SIDE:
        upright.thumbnail((SIDES[0], SIDES[0]), Image.Resampling.LANCZOS)
    return upright


def _sprite(symbol: str, image: Image.Image, side: int) -> PageSprite:
    """Encodes ``image``. Shrinks photos in place, so that shrinking to the next smaller side starts from the result."""
    stream = io.BytesIO()
    crisp = max(image.size) <= CRISP_SIDE
    if crisp:
        image.save(stream, "PNG", optimize=True)
    else:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        image.save(stream, "JPEG", quality=80, optimize=True)
    kind = "png" if crisp else "jpeg"
    uri = f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
    return PageSprite(symbol, uri, *image.size, crisp)
