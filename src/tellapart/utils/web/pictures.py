"""Encodes pictures for a page."""

from __future__ import annotations

import io

from PIL import Image

LOSSLESS_SIDE = 256  # pixels; smaller pictures are sent losslessly as PNG


def encode_picture(image: Image.Image, longest: int) -> tuple[bytes, str]:
    """Resizes a picture in place to at most ``longest`` pixels per side. Returns its encoded bytes and media type."""

    small = max(image.size) < LOSSLESS_SIDE
    image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 90}))
    return buffer.getvalue(), "image/png" if small else "image/jpeg"
