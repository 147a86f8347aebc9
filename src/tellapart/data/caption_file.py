"""Defines the content of a caption file: texts by id, and the pictures' files and splits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CaptionFile:
    """Texts by id, in file order.

    ``files`` and ``splits`` map an id to its picture file and its split, if the caption file contains them.
    ``numbered``: whether the ids are positions in the file, counting from "1".
    """

    name: str
    texts: dict[str, list[str]]
    files: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    numbered: bool = False
