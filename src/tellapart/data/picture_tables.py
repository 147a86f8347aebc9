"""Rows of tables in several parts (files or splits) with the same columns, one picture per row."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tellapart.data.columns import Columns
from tellapart.data.dataset import ReadItems
from tellapart.data.downloaded_pictures import DownloadedPictures
from tellapart.data.encoded_pictures import decode_base64, is_base64
from tellapart.data.options import Options
from tellapart.data.pictures import PackedClip, PackedPicture, StoredPicture, picture_in
from tellapart.data.records import sole
from tellapart.data.row_index import RowPosition
from tellapart.data.row_source import RowSource
from tellapart.data.skipped import Skipped
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item

PART_STRIDE = 1 << 40  # position = part · PART_STRIDE + row
TEXT_ROWS, PICTURE_ROWS = 1024, 16  # rows per batch, without and with pictures


class BatchedRows(ABC):
    """Rows by number, as dicts. Keeps one batch in memory, so ascending access is fast. Thread-safe."""

    def __init__(self, length: int) -> None:
        self._length, self._lock = length, threading.Lock()
        self._start, self._rows = 0, list[dict[str, Any]]()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Returns a row. Raises `PictureError` if the file is damaged."""
        with self._lock:
            if not self._start <= number < self._start + len(self._rows):
                self._start, self._rows = self._batch(number)
            return self._rows[number - self._start]

    @abstractmethod
    def _batch(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Returns a batch that contains the row, and the number of the batch's first row. Raises `PictureError`."""


@dataclass(frozen=True)
class TablePart:
    """One file or split.

    path: the file that contains the rows. ``where``: its name in messages.
    split: the split of its rows, if the table has no split column; "" if it is unknown.
    ids: precedes a row's number in default ids. ``inside``: precedes it in the names of pictures.
    """

    path: Path
    where: str
    split: str
    ids: str
    inside: str = ""


class PictureTables(RowSource):
    """Rows of several parts.

    packed: whether the parts contain the pictures themselves, rather than their paths.
    clips: whether packed pictures are clips.
    """

    def __init__(
        self, name: str, parts: Sequence[TablePart], schema: Any, columns: Columns, folder: Path, *, clips: bool
    ) -> None:
        """``schema``: the Arrow types of the columns. Raises `UsageError` if the picture column has no pictures."""
        self.name, self.parts, self.columns = name, parts, columns
        self._folder, self._clips, self._files = folder, clips, DownloadedPictures(folder)
        self.packed = self._is_packed(schema)
        self.text_columns = tuple(dict.fromkeys([*columns.texts(), *(() if self.packed else (columns.image,))]))

    @abstractmethod
    def texts(self, part: int) -> BatchedRows:
        """Returns the text columns of a part's rows. Raises `PictureError` if they cannot be read."""

    @abstractmethod
    def cells(self, part: int) -> BatchedRows:
        """Returns the picture column of a part's rows. Raises `PictureError` if it cannot be read."""

    def read(self, options: Options) -> ReadItems:
        """Returns the items, ordered by part and row. Infers the naming scheme of downloads from the first rows."""
        if not self.packed:
            rows = self.rows(Skipped())
            self._files.learn((row[self.columns.image], number - 1) for (_, number), row in rows)
        return self.items(options, merge=not self.packed)

    def rows(self, missing: Skipped) -> Iterator[tuple[RowPosition, dict[str, Any]]]:
        """See `RowSource`. Reads a damaged part up to the damage."""
        number = 0
        for part, table in enumerate(self.parts):
            try:
                rows = self.texts(part)
                for row in range(len(rows)):
                    number += 1
                    yield (part * PART_STRIDE + row, number), rows[row]
            except PictureError as error:
                missing.add_error(str(table.path), error)

    def rows_at(self, places: Iterable[RowPosition]) -> Iterator[dict[str, Any]]:
        """See `RowSource`."""
        opened = -1
        for part, row in (divmod(place, PART_STRIDE) for place, _ in places):
            if part != opened:
                rows, opened = self.texts(part), part
            yield rows[row]

    def item(self, row: Mapping[str, Any], place: RowPosition) -> Item:
        """See `RowSource`."""
        part, number = divmod(place[0], PART_STRIDE)
        table, columns = self.parts[part], self.columns
        where = f"{table.where}, row {number}"
        picture: StoredPicture
        if self.packed:
            load, name = partial(self._bytes, part, number), f"{table.ids}{number}"
            picture = (PackedClip if self._clips else PackedPicture)(table.path, f"{table.inside}{number}", load)
        else:
            picture, name = self._files.picture(row[columns.image], place[1] - 1, where)
        references = columns.references(row, where)
        return Item(columns.id_of(row, name), picture, references, columns.split_of(row, table.split))

    def _bytes(self, part: int, row: int) -> bytes:
        """Returns the encoded picture of a row: bytes, base64, a path, ``{"bytes": …, "path": …}`` with one of these,
        or a list that contains one of them. Raises ValueError, `UsageError` or `PictureError`.
        """
        value = sole(self.cells(part)[row][self.columns.image], str(self.parts[part].path))
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        if is_base64(value):
            return decode_base64(value)
        if isinstance(value, str) and value:
            return picture_in(self._folder, value).read().data
        if not isinstance(value, bytes):
            raise ValueError("this row has no picture")
        return value

    def _is_packed(self, schema: Any) -> bool:
        from pyarrow import types

        kind = schema.field(self.columns.image).type
        lists = (types.is_dictionary, types.is_list, types.is_large_list, types.is_fixed_size_list)
        while any(is_list(kind) for is_list in lists):
            kind = kind.value_type
        if types.is_struct(kind):
            return any(kind.get_field_index(name) >= 0 for name in ("bytes", "path"))
        if types.is_binary(kind) or types.is_large_binary(kind):
            return True
        if not (types.is_string(kind) or types.is_large_string(kind)):
            raise UsageError(
                f"{self.name}: the column '{self.columns.image}' contains {kind}, but no pictures (bytes, paths or "
                f"URLs); available columns: {', '.join(schema.names)}; add image=COLUMN"
            )
        for part in range(len(self.parts)):  # a text can be a picture in base64
            with suppress(PictureError):
                rows = self.cells(part)
                cells = (rows[number][self.columns.image] for number in range(len(rows)))
                if first := next(filter(None, cells), None):
                    return is_base64(first[0] if isinstance(first, list) else first)
        return False
