"""Reads a text file line by line, or single rows by byte offset.

`LineSource` is a row source for lines of UTF-8 text, or for records that span several lines as in CSV.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from tellapart.data.encoded_pictures import decode_base64
from tellapart.data.pictures import PackedPicture, signature_of
from tellapart.data.row_index import RowPosition
from tellapart.data.row_source import RowSource
from tellapart.data.skipped import Skipped
from tellapart.data.text_files import UTF16_MARKS, decode_text, usage_errors
from tellapart.errors import UsageError

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


class LineSource(RowSource):
    """Rows of one text file. Readers implement `records`, which parses rows, and `item`, which interprets them."""

    def __init__(self, path: Path, *, header: bool = False, span: tuple[int, int] | None = None) -> None:
        """``span``: read only rows whose first byte is in this range, which must start at the beginning of a row."""
        self.path, self.name = path, str(path)
        self._header, self._span = header, span

    def records(self, lines: Lines) -> Iterator[Any]:
        """Yields records without reading ahead of the current one; None marks a row to skip."""
        return lines

    def rows(self, missing: Skipped) -> Iterator[tuple[RowPosition, Any]]:
        """See `RowSource`. Skips the header, if any, but counts it as a row."""
        with usage_errors(self.path), open_lines(self.path) as file:
            place, stop = self._span or (0, None)
            lines = Lines(file, self.path, place)
            for number, record in enumerate(self.records(lines), start=1):
                if stop is not None and place >= stop:
                    return
                if record is not None and not (self._header and number == 1):
                    yield (place, number), record
                place = lines.place

    def rows_at(self, places: Iterable[RowPosition]) -> Iterator[Any]:
        """See `RowSource`."""
        with usage_errors(self.path), open_lines(self.path) as file:
            for place, _ in places:
                record = next(self.records(Lines(file, self.path, place)), None)
                if record is None:
                    raise UsageError(f"{self.path}: the file has changed since it was opened; open it again")
                yield record

    def where(self, place: RowPosition) -> str:
        """Returns the location of a row, for messages."""
        after = f" after byte {self._span[0]:,}" if self._span else ""
        return f"{self.path}, line {place[1]}{after}"

    def encoded(self, record: Any) -> str:
        """Returns the base64-encoded picture in a record."""
        raise NotImplementedError

    def encoded_picture(self, place: RowPosition) -> PackedPicture:
        """Returns the base64-encoded picture in the row at a position, which is decoded on access."""
        return PackedPicture(self.path, f"line {place[1]}", partial(self._decoded, place))

    def _decoded(self, place: RowPosition) -> bytes:
        return decode_base64(self.encoded(next(self.rows_at([place]))))
