"""A source whose rows are lines of UTF-8 text, or records of several as CSV has them, found again by their byte."""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tellapart.data.base import read_text, usage_errors
from tellapart.data.dataset import Skipped
from tellapart.data.records import NotTextError
from tellapart.data.rows import RowPosition
from tellapart.errors import UsageError
from tellapart.types import Item

if TYPE_CHECKING:
    from _csv import Reader

OPEN_QUOTE = '(a quote that is not closed? Inside quotes write it twice: "")'
MAX_LINE_BYTES = 64 << 20  # bytes of a line: a file without line breaks must not fill the memory
csv.field_size_limit(MAX_LINE_BYTES)  # VLMEvalKit's tables hold pictures; Python's 128 KiB is less than a photo


class Lines(Iterator[str]):
    """The lines from here on; ``place`` is the byte at which the next one begins."""

    def __init__(self, file: BinaryIO, path: Path, place: int = 0) -> None:
        self._file, self.path, self.place = file, path, place
        file.seek(place)

    def __next__(self) -> str:
        raw = self._file.readline(MAX_LINE_BYTES)
        if not raw:
            raise StopIteration
        if len(raw) == MAX_LINE_BYTES:
            raise UsageError(
                f"{self.path}: a line of over {MAX_LINE_BYTES >> 20} MiB (byte {self.place:,}); is it a text?"
            )
        place, self.place = self.place, self.place + len(raw)
        try:
            return raw.decode("utf-8-sig" if place == 0 else "utf-8")
        except UnicodeDecodeError as error:
            if place == 0 and raw.startswith(b"\x1f\x8b"):
                raise UsageError(
                    f"{self.path}: compressed, so that no row can be found; type: gunzip {self.path}"
                ) from None
            raise UsageError(f"{self.path}: not UTF-8 (byte {place + error.start:,}); convert it to UTF-8") from None


class LineSource:
    """Rows of one text file. A reader says what a record is (`records`) and what it means (`item`)."""

    def __init__(self, path: Path, *, header: bool = False, span: tuple[int, int] | None = None) -> None:
        """``span``: only the rows whose first byte is in it; it begins where a row does."""
        self.path, self.name = path, str(path)
        self._header, self._span = header, span

    def records(self, lines: Lines) -> Iterator[Any]:
        """The records in these lines, each taken from no more lines than it has; None is passed over."""
        return lines

    @abstractmethod
    def item(self, record: Any, place: RowPosition, where: str) -> Item | None:
        """What a record means; None where it is to be passed over. Raises `UsageError` that begins with ``where``."""

    def rows(self) -> Iterator[tuple[RowPosition, Any]]:
        """Every record with its place; the header, where there is one, is counted and passed over."""
        with usage_errors(self.path), self.path.open("rb") as file:
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
            except NotTextError as error:
                missing.add(error.where, error.reason)
                continue
            if item is not None:
                yield place, item

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """See `RowSource`."""
        with usage_errors(self.path), self.path.open("rb") as file:
            for place in places:
                record = next(self.records(Lines(file, self.path, place[0])), None)
                item = None if record is None else self.item(record, place, self._where(place))
                if item is None:
                    raise UsageError(f"{self.path}: has changed since it was opened; open it again")
                yield item

    def _where(self, place: RowPosition) -> str:
        after = f" after byte {self._span[0]:,}" if self._span else ""
        return f"{self.path}, line {place[1]}{after}"


def csv_records(lines: Lines, separator: str, *, lenient: bool = False) -> Iterator[list[str]]:
    """The fields of each record of a CSV text. Raises `UsageError` that says near which byte it breaks.

    lenient: a quote that is not closed takes the rest of the file for its field, as Python's programs do.
    """
    records = csv.reader(lines, delimiter=separator) if lenient else csv_reader(lines, separator)
    while True:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise UsageError(f"{lines.path}, byte {lines.place:,}: {error} {OPEN_QUOTE}") from None
        if record is None:
            return
        yield record


def csv_reader(lines: Iterable[str], separator: str) -> Reader:
    """Records of CSV; a quote that is not closed is an error (csv.Error), for it would take in all rows after it.

    Blanks around a quoted field do not count, but between bars: there every field begins with one (Flickr30k), and a
    caption's own quotes stand after it.
    """
    mark = re.escape(separator)
    after = re.compile(rf'"[^\S{mark}\r\n]+(?={mark}|\r?\n|\Z)')
    closed = (after.sub('"', line) for line in lines)
    return csv.reader(closed, delimiter=separator, skipinitialspace=separator != "|", strict=True)


def mended(record: list[str], header: Sequence[str]) -> list[str]:
    """A row of Flickr30k's table whose second bar is missing, as one is in the published file, with its three fields.

    Its second field is "4   A dog runs across the grass ." then. Any other row is returned as it is.
    """
    if [name.strip() for name in header] != ["image_name", "comment_number", "comment"] or len(record) != 2:
        return record
    found = re.fullmatch(r"\s*(\d+)\s+(\S.*)", record[1])
    return [record[0], found[1], found[2]] if found else record


def read_split_lists(
    folders: Iterable[Path], names: Mapping[str, Iterable[str]], key: Callable[[str], str]
) -> dict[str, str]:
    """Which split each name is in, by lists of a name a line: split to the file names that its list may have.

    The first list of a split that is in one of the folders is taken. Raises `UsageError` for a name in two lists.
    """
    places = list(folders)
    found: dict[str, str] = {}
    for split, files in names.items():
        path = next((folder / file for file in files for folder in places if (folder / file).is_file()), None)
        for line in read_text(path).split("\n") if path else ():
            name = key(line.strip())
            if name and found.setdefault(name, split) != split:
                raise UsageError(f"{path}: {name} is in the split '{found[name]}' already")
    return found
