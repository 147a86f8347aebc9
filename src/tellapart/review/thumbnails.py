"""Thumbnails for pages with thousands of pictures, cached outside the folder of pictures."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from tellapart.data.pictures import StoredPicture
from tellapart.types import Picture
from tellapart.utils.atomic_writes import replace_file
from tellapart.utils.cache_folder import cache_folder
from tellapart.utils.web.pictures import encode_picture

THUMBNAIL_SIDE = 320  # pixels of the longer side


def thumbnail(picture: Picture) -> tuple[bytes, str]:
    """Returns the encoded thumbnail, at most `THUMBNAIL_SIDE` pixels wide or high, and its media type.

    Raises `PictureError`. Thumbnails of unchanged files are read from ``$TELLAPART_CACHE/thumbnails``.
    """
    if not isinstance(picture, StoredPicture):
        return encode_picture(picture.image(), THUMBNAIL_SIDE)
    path = _place(picture)
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        return data, "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
    data, kind = encode_picture(picture.image(), THUMBNAIL_SIDE)
    with contextlib.suppress(OSError):  # if the disk is full, the thumbnail is created again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, lambda new: new.write_bytes(data), sync=False)
    return data, kind


def _place(picture: StoredPicture) -> Path:
    name = f"{picture.address()}\n{picture.signature()}\n{THUMBNAIL_SIDE}".encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(name, digest_size=16).hexdigest()
    return cache_folder() / "thumbnails" / digest[:2] / digest
