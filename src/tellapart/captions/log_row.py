"""One row in the log of a folder's captions: the hashes of its texts, its picture and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.captions.marks import is_marked
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.text_hash import text_hash

KEPT_STATE = ("language", "texts")  # state that does not describe the text itself
RECENT = 4  # texts stored per row, because a killed process may have recorded texts that it did not write


def text_fields(text: str | None, picture: PictureRecord | None = None, captions: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the fields of a log line for a text that tellapart is about to write.

    captions: the captioner's captions that the text is made from, if there are any.
    """
    fields = {"text": None if text is None else text_hash(text), "picture": picture, "captions": captions or None}
    return {name: value for name, value in fields.items() if value is not None}


def state_of_new_text(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state that stays when a model's text replaces a text: the rest describes the previous text."""
    return {name: value for name, value in state.items() if name in KEPT_STATE}


@dataclass(slots=True)
class LogRow:
    """One row in the log.

    hashes: hashes of the last texts that tellapart wrote.
    captions: the captioner's captions that the text was made from, if there are any.
    removed: whether tellapart removed the text, as ``undo`` does.
    replaced: hash and state of the text that the last recorded text replaces.
    """

    hashes: tuple[str, ...] = ()
    picture: PictureRecord | None = None
    captions: tuple[str, ...] = ()
    removed: bool = False
    state: dict[str, Any] = field(default_factory=dict)
    replaced: tuple[str, dict[str, Any]] | None = None

    def wrote(self, text: str) -> bool:
        """Returns whether tellapart wrote this text."""
        return text_hash(text) in self.hashes

    def state_of(self, text: str | None) -> dict[str, Any]:
        """Returns the state of the row's text on disk.

        This is the state before the last change if a killed process recorded a text that it did not write.
        """
        if self.replaced is not None and text is not None and text_hash(text) == self.replaced[0]:
            return self.replaced[1]
        return self.state

    @property
    def is_marked(self) -> bool:
        """Returns whether a person accepted the text on disk, or marked the picture as needing no text."""
        return is_marked(self.state) or (self.replaced is not None and is_marked(self.replaced[1]))

    def update(self, value: Mapping[str, Any]) -> None:
        """Updates the row with another line of the log. Raises TypeError or ValueError if the line is damaged."""
        picture = PictureRecord(*value["picture"]) if "picture" in value else self.picture
        captions = tuple(map(str, value["captions"])) if "captions" in value else self.captions
        if {"text", "person", "removed", "state"} & value.keys():
            before = value.get("before") if "state" in value else None
            self.replaced = None if before is None else (text_hash(str(before)), dict(value.get("was") or {}))
        self.state = dict(value["state"]) if "state" in value else self.state
        self.picture, self.captions = picture, captions
        self.removed = "removed" in value or (self.removed and "text" not in value)
        if "text" in value:
            # Drops texts that killed processes recorded but did not write.
            before = text_hash(str(value.get("before")))
            hashes = (before,) if before in self.hashes else self.hashes
            self.hashes = tuple(dict.fromkeys([*hashes, str(value["text"])]))[-RECENT:]
