"""Reads a text file line by line, or single rows by byte offset.

`LineSource` is a row source for lines of UTF-8 text, or for records that span several lines as in CSV.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.data.dataset import Skipped
from tellapart.data.encoded_pictures import decode_base64
from tellapart.data.pictures import PackedPicture, signature_of
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowPosition
from tellapart.data.text_files import UTF16_MARKS, decode_text, usage_errors
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item

MAX_LINE_BYTES = 64 << 20  # maximum bytes per line, so that a file without line breaks does not fill the memory


class Lines(Iterator[str]):
    """Iterates over lines from the file's current position; ``place`` is the byte offset of the next line."""

    def __init__(self, file: BinaryIO, path: Path, place: int = 0) -> None:
        self._file, self.path, self.place = file, path, place
        file.seek(place)

    def __next__(self) -> str:
        raw = self._file.readline(MAX_LINE_BYTES)
        if not raw:
            raise StopIteration
        if len(raw) == MAX_LINE_BYTES:
            raise UsageError(
                f"{self.path}: a line exceeds {MAX_LINE_BYTES >> 20} MiB (byte {self.place:,}); is this a text file?"
            )
        place, self.place = self.place, self.place + len(raw)
        try:
            return raw.decode("utf-8-sig" if place == 0 else "utf-8")
        except UnicodeDecodeError as error:
            if place == 0 and raw.startswith(b"\x1f\x8b"):
                raise UsageError(
                    f"{self.path}: compressed files do not allow random access; run: gunzip {self.path}"
                ) from None
            raise UsageError(
                f"{self.path}: not valid UTF-8 (byte {place + error.start:,}); convert it to UTF-8"
            ) from None


@lru_cache(maxsize=2)
def _as_utf8(path: Path, signature: tuple[int, int]) -> bytes:
    return decode_text(path.read_bytes()).encode()


def open_lines(path: Path) -> BinaryIO:
    """Opens a text file as UTF-8. Converts UTF-16 files in memory."""
    file = path.open("rb")
    if not file.read(2).startswith(UTF16_MARKS):
        return file
    with file:
        return io.BytesIO(_as_utf8(path, signature_of(path, str(path))))


class LineSource:
    """Rows of one text file. Readers implement `records`, which parses records, and `item`, which interprets them."""

    def __init__(self, path: Path, *, header: bool = False, span: tuple[int, int] | None = None) -> None:
        """``span``: read only rows whose first byte is in this range, which must start at the beginning of a row."""
        self.path, self.name = path, str(path)
        self._header, self._span = header, span

    def records(self, lines: Lines) -> Iterator[Any]:
        """Yields records without reading ahead of the current one; None marks a row to skip."""
        return lines

    @abstractmethod
    def item(self, record: Any, place: RowPosition, where: str) -> Item | None:
        """Returns the item of a record, or None to skip it. Raises a `UsageError` whose message begins
        with ``where``.
        """

    def encoded(self, record: Any) -> str:
        """Returns the base64-encoded picture in a record."""
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[RowPosition, Any]]:
        """Yields every record with its position. Skips the header, if any, but counts it as a row."""
        with usage_errors(self.path), open_lines(self.path) as file:
            place, stop = self._span or (0, None)
            lines = Lines(file, self.path, place)
            for number, record in enumerate(self.records(lines), start=1):
                if stop is not None and place >= stop:
                    return
                if record is not None and not (self._header and number == 1):
                    yield (place, number), record
                place = lines.place

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """See `RowSource`."""
        for place, record in self.rows():
            where = self._where(place)
            try:
                item = self.item(record, place, where)
            except RowError as error:
                missing.add(error.where, error.reason)
                continue
            if item is not None:
                yield place, item

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """See `RowSource`."""
        with usage_errors(self.path), open_lines(self.path) as file:
            for place in places:
                record = next(self.records(Lines(file, self.path, place[0])), None)
                item = None if record is None else self.item(record, place, self._where(place))
                if item is None:
                    raise UsageError(f"{self.path}: the file has changed since it was opened; open it again")
                yield item

    def picture(self, place: RowPosition) -> bytes:
        """Decodes the base64 picture of the record at a position. Raises ValueError and `UsageError`."""
        with usage_errors(self.path), open_lines(self.path) as file:
            return decode_base64(self.encoded(next(self.records(Lines(file, self.path, place[0])))))

    def _where(self, place: RowPosition) -> str:
        after = f" after byte {self._span[0]:,}" if self._span else ""
        return f"{self.path}, line {place[1]}{after}"


class EncodedCell(PackedPicture):
    """A base64-encoded picture inside a row."""

    __slots__ = ("_place", "_rows")

    def __init__(self, rows: LineSource, place: RowPosition) -> None:
        super().__init__(rows.path, f"line {place[1]}")
        self._rows, self._place = rows, place

    def data(self) -> bytes:
        """See `PackedPicture`."""
        try:
            return self._rows.picture(self._place)
        except (ValueError, StopIteration, UsageError) as error:
            raise PictureError(f"{self.name}: {error}") from None
