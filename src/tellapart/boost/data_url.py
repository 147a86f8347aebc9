"""Encodes a picture as a data URL."""

from __future__ import annotations

import base64
import io
from contextlib import suppress

from PIL import Image

from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.types import Picture

AS_IT_IS = {"JPEG": "image/jpeg", "PNG": "image/png"}  # formats that every server decodes
LARGEST_SIDE = 1024  # length of the longer side in pixels; multimodal models use fewer pixels
LARGEST_FILE = 2 << 20  # bytes
ORIENTATION = 0x0112  # EXIF tag, which not all servers apply


def data_url(picture: Picture) -> str:
    """Returns ``data:image/…;base64,…``. Keeps the file's bytes if the picture is upright and small, and re-encodes it
    otherwise.

    Raises `PictureError` for a damaged picture, before any request is sent.
    """
    read = picture.read() if isinstance(picture, FilePicture) else picture
    kind, data = _unchanged(read.data) if isinstance(read, BytesPicture) else (None, b"")
    if kind is None:
        kind, data = _encoded(read.image())
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _unchanged(data: bytes) -> tuple[str | None, bytes]:
    """Returns the media type and the bytes of a file that can be sent unchanged, i.e. one that is intact, small,
    upright and opaque. The media type of any other file is None.
    """
    if len(data) > LARGEST_FILE:
        return None, b""
    with suppress(Exception), Image.open(io.BytesIO(data), formats=list(AS_IT_IS)) as opened:
        # Pillow raises many error types; re-encoding reports the cause.
        upright = opened.getexif().get(ORIENTATION, 1) == 1
        opaque = opened.mode in ("RGB", "L") and not opened.has_transparency_data
        if upright and opaque and max(opened.size) <= LARGEST_SIDE:
            opened.load()  # detects truncated files
            return AS_IT_IS[opened.format or ""], data
    return None, b""


def _encoded(image: Image.Image) -> tuple[str, bytes]:
    """Resizes a picture to `LARGEST_SIDE` and encodes it as lossless PNG if the resized picture is small, otherwise as
    JPEG.
    """
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    if max(image.size) <= LARGEST_SIDE // 4:
        image.save(file, "PNG")
        return "image/png", file.getvalue()
    image.save(file, "JPEG", quality=95)
    return "image/jpeg", file.getvalue()
