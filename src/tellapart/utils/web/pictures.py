"""A picture for a browser: decoded and written anew, so that nothing but pixels is sent."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

SMALL = 256  # pixels; smaller pictures go as PNG, without loss


def encode_picture(image: Image.Image, longest: int) -> tuple[bytes, str]:
    """The bytes of a picture with sides of at most ``longest`` pixels, and their media type. Changes ``image``."""
    from PIL import Image

    small = max(image.size) < SMALL
    image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 90}))
    return buffer.getvalue(), "image/png" if small else "image/jpeg"
