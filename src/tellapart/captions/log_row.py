"""Represents one row in the log of a folder's captions: the hashes of its texts, and its picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.text_hash import text_hash

RECENT = 4  # texts stored per row, because a killed process may have recorded texts that it did not write


@dataclass(frozen=True)
class TextRow:
    """One row in the log.

    hashes: hashes of the last texts that tellapart wrote.
    captions: the captioner's captions that the text was made from, if there are any.
    removed: whether tellapart removed the text, as ``undo`` does.
    """

    hashes: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    captions: tuple[str, ...] = ()
    removed: bool = False

    @classmethod
    def new(cls, text: str | None, picture: PictureRecord | None = None, captions: Sequence[str] = ()) -> TextRow:
        """Creates the row for a text that is about to be written."""
        return cls(() if text is None else (text_hash(text),), picture, tuple(captions))

    def record(self, file: str, key: str) -> dict[str, Any]:
        """Returns the row as the content of a log line."""
        value: dict[str, Any] = {"file": file, "id": key}
        if self.hashes:
            value["text"] = self.hashes[-1]
        if self.picture is not None:
            value["picture"] = [self.picture.size, self.picture.time_ns, self.picture.content, self.picture.place]
        if self.captions:
            value["captions"] = self.captions
        return value

    def line(self, file: str, key: str) -> str:
        """Returns the line to write to the log."""
        return json.dumps(self.record(file, key)) + "\n"

    def with_line(self, value: Mapping[str, Any]) -> TextRow:
        """Returns the row, updated with another line of the log."""
        hashes = dict.fromkeys([*self.hashes, *([str(value["text"])] if "text" in value else [])])
        if "text" in value and (before := text_hash(str(value.get("before")))) in self.hashes:
            # Drops texts that killed processes recorded but did not write.
            hashes = dict.fromkeys([before, str(value["text"])])
        picture = PictureRecord(*value["picture"]) if "picture" in value else self.picture
        captions = tuple(map(str, value["captions"])) if "captions" in value else self.captions
        removed = "removed" in value or (self.removed and "text" not in value)
        return TextRow(tuple(hashes)[-RECENT:], picture, captions, removed)
