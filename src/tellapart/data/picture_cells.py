"""Finds the picture in a cell of a table: a path, a URL, base64 or bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tellapart.data.downloads import DownloadedFiles
from tellapart.data.encoded_pictures import decode_base64, is_base64
from tellapart.data.pictures import FilePicture, picture_file, picture_in
from tellapart.data.records import sole
from tellapart.data.row_errors import RowError
from tellapart.errors import PictureError, UsageError

MAX_PATH = 4096  # maximum number of characters in a path or URL


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
