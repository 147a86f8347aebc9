"""Which columns of a table hold the picture, its captions, its id and its split; one way for CSV, Parquet and
datasets.

Columns are recognized by common names, or named by the user: ``image=COLUMN``, ``captions=COLUMN`` (or
several: ``captions=title,alt``), ``id=COLUMN``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.data.base import Options, clean_captions, normalize_split
from tellapart.data.downloads import DownloadedFiles
from tellapart.data.images.clips import picture_file
from tellapart.data.images.pictures import FilePicture
from tellapart.data.records import DATA_KEYS, NotTextError, find_key, picture_key, text_keys
from tellapart.data.registry import IMAGES
from tellapart.errors import UsageError

KEYS = {
    **IMAGES,
    "image": "the column of the pictures",
    "captions": "the columns of the captions: `title,alt`",
    "id": "the column of the ids",
}
IDS = ("id", "image_id", "key", "__key__")
SPLITS = ("split",)
MAX_PATH = 4096  # characters of a path or an address


@dataclass(frozen=True)
class Columns:
    """The names of the columns; ``captions`` may be none, ``id`` and ``split`` may be ""."""

    image: str
    captions: tuple[str, ...]
    id: str
    split: str

    @classmethod
    def choose(cls, names: Collection[str], options: Options, *, image: str = "") -> Columns:
        """By the options, else by the usual names; ``image`` is one that is known to hold pictures.

        Raises `UsageError` that names the columns there are.
        """
        captions = tuple(name.strip() for name in options.text("captions").split(",") if name.strip())
        wanted = [name for name in (options.text("image"), options.text("id"), *captions) if name]
        there = ", ".join(names) or "none at all"
        for name in wanted:
            if name not in names:
                raise UsageError(f"{options.spec}: no column '{name}'; there are: {there}")
        found = options.text("image") or image or picture_key(names)
        if not found:
            raise UsageError(f"{options.spec}: no column for the picture; there are: {there}; type image=COLUMN")
        rest = [name for name in names if name != found]
        return cls(
            image=found,
            captions=captions or tuple(text_keys(DATA_KEYS, rest)),
            id=options.text("id") or find_key(IDS, rest),
            split=find_key(SPLITS, rest),
        )

    def texts(self) -> list[str]:
        """Every column but the picture's, each once."""
        return list(dict.fromkeys(filter(None, [*self.captions, self.id, self.split])))

    def references(self, row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """The captions of a row: texts, lists of texts or of ``{"raw": text}``, in CSV as JSON, Python or NumPy."""
        return tuple(text for name in self.captions for text in texts_of(row[name], f"{where}, column '{name}'"))

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """The id of a row, or ``otherwise`` where no column has it."""
        value = row[self.id] if self.id else None
        return otherwise if value is None or value == "" else str(value)

    def split_of(self, row: Mapping[str, Any], otherwise: str = "") -> str:
        """The split of a row, by its usual name."""
        return normalize_split(str(row[self.split] or "")) if self.split else otherwise


def texts_of(value: Any, where: str) -> tuple[str, ...]:
    """The captions in a cell (see `Columns.references`). Raises `UsageError` that begins with ``where``."""
    try:
        return clean_captions(value, where)
    except NotTextError:
        raise
    except UsageError:
        raise UsageError(
            f"{where}: a text or a list of texts was expected, found {str(value)[:40]!r}; type captions=COLUMN"
        ) from None


class PictureLocator:
    """Finds the file that a row speaks of: by its path inside a folder, or what was fetched from an address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fetched = DownloadedFiles(folder)

    def picture(self, value: Any, number: int, where: str) -> tuple[FilePicture, str]:
        """(the picture, what to call it where no id is given) of a path or address. ``number``: the row's, from 0."""
        if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_PATH:
            raise UsageError(f"{where}: a picture's path was expected, found {str(value)[:40]!r}; type image=COLUMN")
        value = value.strip()
        if "://" not in value[:12]:
            return picture_file(self._folder / value), value
        path = self._fetched.path(value, number)
        return picture_file(path), path.relative_to(self._folder).as_posix()

    def learn(self, values: Iterable[tuple[Any, int]]) -> None:
        """Look at some rows, to see what programs called the files that they fetched."""
        self._fetched.learn(
            (value, number) for value, number in values if isinstance(value, str) and "://" in value[:12]
        )
