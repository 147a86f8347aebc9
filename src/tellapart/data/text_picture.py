"""Defines the prompt that takes the place of a picture in data without pictures."""

from __future__ import annotations

from typing import Any

from tellapart.data.pictures import content_key
from tellapart.errors import PictureError


class TextPicture:
    """A prompt that takes the place of an item's picture. It has no pixels.

    ``asked``: the instruction and its input, without the template. ``category``: as in Vicuna's evaluation, or "".
    """

    __slots__ = ("asked", "category", "name", "text")

    def __init__(self, text: str, name: str, asked: str = "", category: str = "") -> None:
        self.text, self.name, self.asked, self.category = text, name, asked or text, category

    def key(self) -> str:
        """Returns the content key of the text."""
        return content_key(self.text.encode())

    def image(self) -> Any:
        """Raises `PictureError`, because a prompt has no pixels."""
        raise PictureError(f"{self.name}: a prompt, not a picture")
