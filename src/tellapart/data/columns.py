"""Interprets the columns of a table: picture, captions, id and split.

`Columns` are recognized by common names, or named by the user: ``image=COLUMN``, ``captions=COLUMN`` (or several:
``captions=title,alt``), ``id=COLUMN``. CSV, Parquet and the datasets library accept the same keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.data.downloads import DownloadedFiles
from tellapart.data.encoded_pictures import decode_base64, is_base64
from tellapart.data.options import Options
from tellapart.data.pictures import FilePicture, picture_file, picture_in
from tellapart.data.reader import IMAGES
from tellapart.data.record_keys import DATA_KEYS, VIZWIZ_FLAGS, find_key, picture_key, text_keys
from tellapart.data.records import id_text, sole
from tellapart.data.references import clean_captions
from tellapart.data.row_errors import RowError
from tellapart.data.splits import normalize_split
from tellapart.errors import PictureError, UsageError

COLUMN_KEYS = {
    **IMAGES,
    "image": "name of the picture column",
    "captions": "names of the caption columns, such as `title,alt`",
    "id": "name of the id column",
}
IDS = ("id", "image_id", "key", "__key__")
SPLITS = ("split",)
MAX_PATH = 4096  # maximum number of characters in a path or URL


@dataclass(frozen=True)
class Columns:
    """The column names; ``captions`` may be empty, ``id`` and ``split`` may be ""."""

    image: str
    captions: tuple[str, ...]
    id: str
    split: str
    flags: tuple[str, ...] = ()  # VizWiz's

    @classmethod
    def choose(cls, names: Collection[str], options: Options, *, image: str = "") -> Columns:
        """Selects the columns in the options, or columns with common names. ``image``: a column that contains pictures.

        Raises a `UsageError` that lists the available columns.
        """
        captions = tuple(name.strip() for name in options.text("captions").split(",") if name.strip())
        wanted = [name for name in (options.text("image"), options.text("id"), *captions) if name]
        there = ", ".join(names) or "none"
        for name in wanted:
            if name not in names:
                raise UsageError(f"{options.spec}: no column '{name}'; available columns: {there}")
        found = options.text("image") or image or picture_key(names)
        if not found:
            raise UsageError(
                f"{options.spec}: no picture column was found; available columns: {there}; add image=COLUMN"
            )
        rest = [name for name in names if name != found]
        return cls(
            image=found,
            captions=captions or tuple(text_keys(DATA_KEYS, rest)),
            id=options.text("id") or find_key(IDS, rest),
            split=find_key(SPLITS, rest),
            flags=tuple(key for flag in VIZWIZ_FLAGS if (key := find_key((flag,), rest))),
        )

    def texts(self) -> list[str]:
        """Returns the names of all columns except the picture column, without duplicates."""
        return list(dict.fromkeys(filter(None, [*self.captions, self.id, self.split, *self.flags])))

    def references(self, row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """Returns a row's captions: texts, or lists of texts or ``{"raw": text}``.

        In CSV, lists are printed by JSON, Python or NumPy.
        """
        flags = {flag: row[flag] for flag in self.flags}
        return tuple(text for name in self.captions for text in texts_of(row[name], f"{where}, column '{name}'", flags))

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """Returns a row's id, or ``otherwise`` if no column contains it."""
        value = row[self.id] if self.id else None
        return otherwise if value is None or value == "" or value != value else id_text(value)

    def split_of(self, row: Mapping[str, Any], otherwise: str = "") -> str:
        """Returns the standard name of a row's split."""
        return normalize_split(str(row[self.split] or "")) if self.split else otherwise


def texts_of(value: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns the captions in a cell (see `Columns.references`); ``record`` can contain VizWiz's flags.

    Raises a `UsageError` whose message begins with ``where``.
    """
    try:
        return clean_captions(value, where, record)
    except RowError:
        raise
    except UsageError:
        raise UsageError(
            f"{where}: expected a string or a list of strings, got {str(value)[:40]!r}; add captions=COLUMN"
        ) from None


class PictureLocator:
    """Finds a row's picture file, either by its path inside a folder or as a download from a URL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fetched = DownloadedFiles(folder)

    def picture(self, value: Any, number: int, where: str) -> tuple[FilePicture, str]:
        """Returns the picture for a path or URL, and its default id. ``number``: the row number, counting from 0."""
        value = sole(value, where)
        if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_PATH:
            raise UsageError(f"{where}: expected the path of a picture, got {str(value)[:40]!r}; add image=COLUMN")
        value = value.strip()
        if "://" not in value[:12]:
            return picture_in(self._folder, value), value
        path = self._fetched.path(value, number)
        return picture_file(path), path.relative_to(self._folder).as_posix()

    def learn(self, values: Iterable[tuple[Any, int]]) -> None:
        """Infers the naming scheme of downloaded files from some rows."""
        self._fetched.learn(
            (url, number)
            for value, number in values
            for url in (value if isinstance(value, list) else [value])
            if isinstance(url, str) and "://" in url[:12]
        )


def cell_bytes(value: Any, folder: Path, name: str) -> bytes:
    """Returns the encoded picture in a cell: bytes, base64, a path, ``{"bytes": …, "path": …}`` with one of these, or a
    list that contains one of them. Raises `PictureError`.
    """
    try:
        value = sole(value, name)
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        if is_base64(value):
            return decode_base64(value)
    except (RowError, ValueError) as error:
        raise PictureError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None
    if isinstance(value, str) and value:
        return picture_in(folder, value).read().data
    if not isinstance(value, bytes):
        raise PictureError(f"{name}: this row has no picture")
    return value


def not_a_picture(kind: str, column: str, spec: str, names: list[str]) -> UsageError:
    """Returns the error to raise for a column that cannot contain pictures."""
    return UsageError(
        f"{spec}: the column '{column}' contains {kind}, but no pictures (bytes, paths or URLs); "
        f"available columns: {', '.join(names)}; add image=COLUMN"
    )
