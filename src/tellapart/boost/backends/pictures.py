"""Pictures as data URLs for servers."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from tellapart.data.images.pictures import BytesPicture, FilePicture
from tellapart.types import Picture

if TYPE_CHECKING:
    from PIL import Image

AS_IT_IS = {"JPEG": "image/jpeg", "PNG": "image/png"}  # what every server decodes
LARGEST_SIDE = 1024  # pixels; multimodal models see less than that
LARGEST_FILE = 2 << 20  # bytes
ORIENTATION = 0x0112  # of EXIF; servers differ in whether they turn the picture


def data_url(picture: Picture) -> str:
    """``data:image/…;base64,…``: the file itself where it is upright and small, else drawn anew.

    Raises `PictureError` for a damaged picture: the server is not asked about it.
    """
    read = picture.read() if isinstance(picture, FilePicture) else picture
    if isinstance(read, BytesPicture):
        kind = _plain(read.data)
        data = read.data if kind else b""
    else:
        kind, data = None, b""
    if kind is None:
        kind, data = _drawn(read.image())
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _plain(data: bytes) -> str | None:
    """The media type of a file that can go as it is: sound, small, upright."""
    from PIL import Image

    if len(data) > LARGEST_FILE:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=list(AS_IT_IS)) as opened:
            upright = opened.getexif().get(ORIENTATION, 1) == 1
            plain = upright and max(opened.size) <= LARGEST_SIDE and opened.mode in ("RGB", "L")
            if plain:
                opened.load()  # a file that breaks off is found here
            return AS_IT_IS[opened.format or ""] if plain else None
    except Exception:  # Pillow answers damaged bytes with almost anything; drawing it anew says what is wrong
        return None


def _drawn(image: Image.Image) -> tuple[str, bytes]:
    """A decoded picture, no larger than `LARGEST_SIDE`: PNG where it is small (nothing is lost), JPEG else."""
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    small = max(image.size) <= LARGEST_SIDE // 4
    image.save(file, "PNG" if small else "JPEG", **({} if small else {"quality": 95}))
    return "image/png" if small else "image/jpeg", file.getvalue()
