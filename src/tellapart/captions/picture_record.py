"""Records the picture that a caption was written for, identified by its file and decoded bytes."""

from __future__ import annotations

import os
from typing import NamedTuple

from tellapart.captions.text_hash import text_hash
from tellapart.data.pictures import StoredPicture
from tellapart.errors import PictureError
from tellapart.types import Picture


class PictureRecord(NamedTuple):
    """The picture that a caption was written for.

    size: size of the picture's file in bytes.
    time_ns: modification time of the file.
    content: key of the picture's bytes; "" if the picture was replaced during captioning.
    place: hash of the picture's path.
    """

    size: int
    time_ns: int
    content: str
    place: str

    @classmethod
    def of(cls, picture: Picture, content: str | None = None) -> PictureRecord | None:
        """Records a picture in its current state. Returns None if the picture cannot be read.

        content: the content key to record; None computes it here. A caller that computes the key itself must read the
            bytes after this call, so that a later change to the file is noticed.
        """
        try:
            if not isinstance(picture, StoredPicture):
                key = picture.key() if content is None else content
                return cls(0, 0, key, text_hash(key))
            size, time_ns = picture.signature()
            return cls(size, time_ns, picture.key() if content is None else content, _place(picture))
        except PictureError:
            return None

    def if_unchanged(self, picture: Picture) -> PictureRecord:
        """Returns this record, but with an empty ``content`` if the picture's file has since been replaced."""
        if not isinstance(picture, StoredPicture):
            return self
        now = self.of(picture, "")
        same = now is not None and now._replace(content=self.content) == self
        return self if same else self._replace(content="")

    def is_of(self, picture: Picture) -> bool:
        """Returns whether the picture still has this content.

        Does not read the file if its size and modification time are unchanged.
        """
        if not self.content:
            return False
        if not isinstance(picture, StoredPicture):
            return picture.key() == self.content
        if picture.signature() == (self.size, self.time_ns) and _place(picture) == self.place:
            return True
        return picture.key() == self.content


def _place(picture: StoredPicture) -> str:
    return text_hash(os.path.realpath(picture.address()))
