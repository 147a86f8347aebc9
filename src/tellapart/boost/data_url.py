"""Writes a picture as a data URL."""

from __future__ import annotations

import base64
import io

from PIL import Image

from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.types import Picture

AS_IT_IS = {"JPEG": "image/jpeg", "PNG": "image/png"}  # formats that every server decodes
LARGEST_SIDE = 1024  # longer side in pixels; multimodal models use fewer
LARGEST_FILE = 2 << 20  # bytes
ORIENTATION = 0x0112  # EXIF tag, which not all servers apply


def data_url(picture: Picture) -> str:
    """Returns ``data:image/…;base64,…``: the file itself if it is upright and small, otherwise re-encoded.

    Raises `PictureError` for a damaged picture, before any request.
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
    """Returns the media type of a file that can be sent unchanged (intact, small, upright, opaque); None for others."""
    if len(data) > LARGEST_FILE:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=list(AS_IT_IS)) as opened:
            upright = opened.getexif().get(ORIENTATION, 1) == 1
            plain = upright and max(opened.size) <= LARGEST_SIDE and opened.mode in ("RGB", "L")
            plain = plain and not opened.has_transparency_data
            if plain:
                opened.load()  # detects truncated files
            return AS_IT_IS[opened.format or ""] if plain else None
    except Exception:  # Pillow raises many error types; re-encoding reports the cause
        return None


def _drawn(image: Image.Image) -> tuple[str, bytes]:
    """Resizes a picture to `LARGEST_SIDE` and encodes it: as lossless PNG if that is small enough,
    otherwise as JPEG.
    """
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    small = max(image.size) <= LARGEST_SIDE // 4
    image.save(file, "PNG" if small else "JPEG", **({} if small else {"quality": 95}))
    return "image/png" if small else "image/jpeg", file.getvalue()
