"""The interface of layouts, the ways in which the captions of a folder are stored on disk.

A layout reads and writes raw texts by picture id. For a file next to a picture, the raw text is the whole file. For a
row in a list, it is the row's captions, one per line. Unchanged rows and fields are preserved byte for byte.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class TextPlace(NamedTuple):
    """Where a picture's text is logged: the log's folder, and the ``file`` and ``id`` within the log."""

    folder: Path
    file: str
    key: str


class CaptionLayout(ABC):
    """Base class for ways to store captions on disk. ``name`` is used in messages."""

    name: str
    writable = True
    shows_state = False  # whether rows also store the fields in `list_layout.MIRRORED`

    @abstractmethod
    def place(self, id_: str) -> TextPlace:
        """Returns the location of this picture's text in the logs."""

    @abstractmethod
    def read(self, ids: Sequence[str]) -> dict[str, str]:
        """Reads the current raw texts of these pictures from disk; omits pictures without a text."""

    @abstractmethod
    def write(self, raws: Mapping[str, str | None], states: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes raw texts (None removes a text), and the states that the layout stores."""

    def raw(self, id_: str, text: str) -> str:
        """Converts a caption, as written by a person or a model, to raw text."""
        return text

    def text(self, id_: str, raw: str) -> str:
        """Converts raw text to a caption."""
        return raw

    def state(self, id_: str) -> dict[str, Any]:
        """Returns the state (accepted, decorative, …) that the layout itself stores for a picture's text."""
        return {}

    def strays(self) -> dict[TextPlace, str]:
        """Returns the raw texts that do not belong to any picture in the folder, by location."""
        return {}

    def move(self, stray: TextPlace, id_: str) -> None:
        """Assigns a stray text to this picture without changing the text."""
        raise NotImplementedError

    def file_of(self, file: str) -> str:
        """Maps a ``file`` in the log to the corresponding ``file`` from `place`."""
        return file

    def parts(self, keys: Iterable[str]) -> list[CaptionLayout]:
        """Returns layouts for the pictures' additional texts, if the logs store them under these keys."""
        return []

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the files exclusively if another command may append to them."""
        yield
