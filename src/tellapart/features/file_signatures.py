"""The signatures of picture files, which show whether a file has changed since its content was hashed."""

from __future__ import annotations

import os
import time

from tellapart.data.pictures import StoredPicture

# A file modified more recently than this may change again within the clock's resolution, and so seem unchanged.
SETTLED_NS = 2_000_000_000
Signature = tuple[int, int]  # a file's size in bytes and modification time in ns


def file_identity(picture: StoredPicture) -> tuple[str, Signature]:
    """Returns the address of a picture as valid text, which SQLite requires, and its signature. Raises
    `PictureError`.
    """
    return os.fsencode(picture.address()).decode("utf-8", "backslashreplace"), picture.signature()


def settled(signature: Signature) -> bool:
    """Returns whether a file that was read now is old enough for changes to show in its signature."""
    return time.time_ns() - signature[1] > SETTLED_NS
