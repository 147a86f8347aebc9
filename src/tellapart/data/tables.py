"""Tables and other files of rows in any format: random access to rows by position, and the meaning of columns.

Items are created on access, so a million rows need no more memory than a thousand. A `RowSource` reads its file once
from end to end, and later any row by its position. An index of all rows (their positions, which rows share a picture,
duplicate ids) is kept in an unnamed file on disk, 24 bytes per row. `LineSource` is the source for lines of UTF-8
text, or records that span several lines as in CSV, which it finds by byte offset.

`Columns` are recognized by common names, or named by the user: ``image=COLUMN``, ``captions=COLUMN`` (or several:
``captions=title,alt``), ``id=COLUMN``, in the same way for CSV, Parquet and datasets. `DownloadedFiles` finds the
files downloaded from a list of URLs; every downloader has its own naming scheme:

| name (for row 12, from 0, of ``https://a.org/b/cat.jpg?w=1``) | who |
|---|---|
| ``cat.jpg`` | wget, curl |
| ``12.jpg``, ``image_12.jpg``, ``00000012.jpg`` | by row; eight digits: ClipCap's own program |
| ``00000/000000012.jpg`` | img2dataset, ten thousand per folder |
| ``3632233996``, ``12_3632233996`` | CRC-32 of the address: ViLBERT's program and its descendants |
| ``….jpg`` | MD5, SHA-1 or SHA-256 of the address |

The suffix may be any picture suffix or none. The scheme is inferred from the existing files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import struct
import tempfile
import zlib
from _csv import Reader
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, overload
from urllib.parse import unquote, urlsplit

import numpy as np

from tellapart.data.dataset import OnDemand, Skipped
from tellapart.data.listed_pictures import check_unique_ids, has_file
from tellapart.data.pictures import FilePicture, PackedPicture, picture_file, picture_in, signature_of
from tellapart.data.reader import IMAGES
from tellapart.data.records import (
    DATA_KEYS,
    VIZWIZ_FLAGS,
    RowError,
    decode_base64,
    find_key,
    id_text,
    is_base64,
    picture_key,
    sole,
    text_keys,
)
from tellapart.data.references import clean_captions
from tellapart.data.selection import Options, check_splits, normalize_split
from tellapart.data.text_files import UTF16_MARKS, decode_text, read_text, usage_errors, utf8_bytes
from tellapart.errors import PictureError, UsageError
from tellapart.types import Item
from tellapart.utils.messages import track

RowPosition = tuple[int, int]  # position of a row (in bytes, or by file and row), and its number, from 1
RECORD = struct.Struct(">QQQ")
RECORDS_PER_CHUNK = 1 << 16  # records processed at a time


class RowSource(Protocol):
    """One or several files of rows."""

    name: str

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """Yields every row once, in order. Adds rows without a picture to ``missing``. Raises `UsageError`."""
        ...

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """Yields the rows at these positions, in this order; fast if they ascend."""
        ...


def stream_items(source: RowSource, options: Options, *, merge: bool) -> tuple[Sequence[Item], Skipped]:
    """Returns the items of a source in row order, restricted to the requested splits and to existing pictures.

    merge: whether to merge all rows with the same id into one item with all their captions; otherwise, duplicate ids
    raise `UsageError`. Without merging, reading stops at ``limit=``, and the rows after it are not checked.
    """
    missing, index = Skipped(), RowIndex.open()
    splits: set[str] = set()
    enough = 0 if merge or options.text("part") else options.integer("limit", 0, least=1)
    for place, item in track(source.scan(missing), label=f"reading {source.name}"):
        splits.add(item.split)
        if (not options.splits or item.split in options.splits) and has_file(item, missing):
            index.add(item.id, place)
        if enough and len(index) >= enough:
            break
    check_splits(splits, options)
    index.close()
    rows = LazyItems(source, index, range(len(index)))
    if not merge:
        check_unique_ids(rows.doubles(), source.name)
    return rows, missing


class LazyItems(OnDemand):
    """Items of a source, selected by their numbers in its index."""

    def __init__(self, source: RowSource, index: RowIndex, order: Sequence[int]) -> None:
        self._source, self._index, self._order = source, index, order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Item]:
        return self._items(self._order)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> LazyItems: ...
    def __getitem__(self, index: int | slice) -> Item | LazyItems:
        if isinstance(index, slice):
            return LazyItems(self._source, self._index, self._order[index])
        return next(self._items([self._order[index]]))

    def subset(self, indices: Iterable[int]) -> LazyItems:
        """Returns the items at these indices, in this order; takes eight bytes per item."""
        return LazyItems(self._source, self._index, array("Q", (self._order[index] for index in indices)))

    def doubles(self) -> Iterator[Item]:
        """Yields every row of the items that have several."""
        return self._source.read(place for n in self._index.doubles() for place in self._index.places(n))

    def _items(self, numbers: Sequence[int]) -> Iterator[Item]:
        rows = self._source.read(place for number in numbers for place in self._index.places(number))
        for number in numbers:
            yield self._merged(list(islice(rows, self._index.count(number))))

    def _merged(self, rows: list[Item]) -> Item:
        first = rows[0]
        for other in rows[1:]:
            if other.picture.name != first.picture.name:
                raise UsageError(
                    f"{self._source.name}: {first.picture.name} and {other.picture.name} have the "
                    f"same id {first.id!r}; ids must be unique"
                )
        captions = [caption for row in rows for caption in row.references]
        return first if len(rows) == 1 else replace(first, references=tuple(captions))


class RowIndex:
    """An index on disk from items to their rows: records of three 64-bit numbers.

    Records are written as (hash of the id, position, row number). Sorting groups the rows of one id. Then the position
    of the id's first row replaces the hash, and sorting again puts the items in file order. The probability that any
    two of a million ids share a hash is 3e-8.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rows = 0
        self._records: Any = None  # rows × 3, big-endian, so that records sort as byte strings
        self._starts: Any = None  # position of each item's first record; None if every record is an item

    @classmethod
    def open(cls) -> RowIndex:
        """Creates an empty index in an unnamed file."""
        return cls(tempfile.TemporaryFile())  # stays open as long as the index exists

    def add(self, id_: str, place: RowPosition) -> None:
        """Adds one row."""
        digest = hashlib.blake2b(utf8_bytes(id_), digest_size=8).digest()
        self._file.write(RECORD.pack(int.from_bytes(digest), *place))
        self._rows += 1

    def close(self) -> None:
        """Finishes adding rows; items can be requested from now on."""
        self._file.flush()
        if not self._rows:
            return
        self._sort()
        found = sum(int(first.sum()) for first in self._give_first_places())
        self._sort()
        if found < self._rows:
            self._note_starts()

    def __len__(self) -> int:
        """Returns the number of items, or of rows while rows are still being added."""
        return self._rows if self._starts is None else len(self._starts)

    def count(self, number: int) -> int:
        """Returns the number of rows of an item."""
        return self._span(number)[1] - self._span(number)[0]

    def places(self, number: int) -> Iterator[RowPosition]:
        """Yields the rows of an item."""
        for row in range(*self._span(number)):
            _, place, row_number = self._records[row]
            yield int(place), int(row_number)

    def doubles(self) -> Iterator[int]:
        """Yields the numbers of the items that have several rows."""
        return (number for number in range(0 if self._starts is None else len(self)) if self.count(number) > 1)

    def _span(self, number: int) -> tuple[int, int]:
        if self._starts is None:
            return number, number + 1
        end = self._starts[number + 1] if number + 1 < len(self._starts) else self._rows
        return int(self._starts[number]), int(end)

    def _sort(self) -> None:
        mapped = np.memmap(self._file, dtype=f"S{RECORD.size}", mode="r+", shape=(self._rows,))
        mapped.sort()  # in place: the pages belong to the file, not to this process's memory
        self._records = mapped.view(">u8").reshape(-1, 3)

    def _give_first_places(self) -> Iterator[Any]:
        """Replaces each hash by the position of its first row; yields, in chunks, which records are the first."""
        last_hash, last_place = None, 0
        for start in range(0, self._rows, RECORDS_PER_CHUNK):
            chunk = self._records[start : start + RECORDS_PER_CHUNK]
            hashes = chunk[:, 0].astype(np.uint64)
            first = np.append(last_hash is None or hashes[0] != last_hash, hashes[1:] != hashes[:-1])
            run = np.maximum.accumulate(np.where(first, np.arange(len(first)), -1))
            places = np.where(run < 0, np.uint64(last_place), chunk[:, 1].astype(np.uint64)[run])
            last_hash, last_place = hashes[-1], places[-1]
            chunk[:, 0] = places
            yield first

    def _note_starts(self) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (the map keeps it)
        for start in range(0, self._rows, RECORDS_PER_CHUNK):
            chunk = self._records[start : start + RECORDS_PER_CHUNK]
            (np.flatnonzero(chunk[:, 0] == chunk[:, 1]) + start).astype(np.uint64).tofile(file)
        file.flush()
        self._starts = np.memmap(file, dtype=np.uint64, mode="r")


OPEN_QUOTE = '(an unclosed quote? Inside quotes, write " as "")'
MAX_LINE_BYTES = 64 << 20  # bytes per line: a file without line breaks must not fill the memory
csv.field_size_limit(MAX_LINE_BYTES)  # VLMEvalKit's tables hold pictures, which exceed Python's limit of 128 KiB


class Lines(Iterator[str]):
    """The lines from the file's current position on; ``place`` is the byte offset of the next one."""

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
    """Opens a text file as UTF-8; converts UTF-16 files in memory."""
    file = path.open("rb")
    if not file.read(2).startswith(UTF16_MARKS):
        return file
    with file:
        return io.BytesIO(_as_utf8(path, signature_of(path, str(path))))


class LineSource:
    """Rows of one text file. Readers implement `records`, which parses records, and `item`, which interprets them."""

    def __init__(self, path: Path, *, header: bool = False, span: tuple[int, int] | None = None) -> None:
        """``span``: read only rows whose first byte is in this range, which must begin at a row."""
        self.path, self.name = path, str(path)
        self._header, self._span = header, span

    def records(self, lines: Lines) -> Iterator[Any]:
        """Yields the records in the lines, reading only the lines of each record; None marks a row to skip."""
        return lines

    @abstractmethod
    def item(self, record: Any, place: RowPosition, where: str) -> Item | None:
        """Returns the item of a record, or None to skip it. Raises a `UsageError` whose message begins
        with ``where``.
        """

    def encoded(self, record: Any) -> str:
        """Returns the base64-encoded picture of a record that holds one."""
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[RowPosition, Any]]:
        """Yields every record with its position; counts and skips the header, if any."""
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


def csv_records(lines: Lines, separator: str, *, lenient: bool = False) -> Iterator[list[str]]:
    """Yields the fields of each record of a CSV text. Raises `UsageError` with a byte offset near the error.

    lenient: let an unclosed quote extend its field to the end of the file, as Python's csv module does.
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
    """Returns a CSV reader that raises csv.Error for an unclosed quote, which would swallow all rows after it.

    Ignores spaces around quoted fields, except in files separated by bars: there every field begins with a space
    (Flickr30k), which may be followed by a caption's own quotes.
    """
    mark = re.escape(separator)
    after = re.compile(rf'"[^\S{mark}\r\n]+(?={mark}|\r?\n|\Z)')
    closed = (after.sub('"', line) for line in lines)
    return csv.reader(closed, delimiter=separator, skipinitialspace=separator != "|", strict=True)


def mended(record: list[str], header: Sequence[str]) -> list[str]:
    """Returns the three fields of the one row in Flickr30k's published table that lacks its second bar.

    The second field of that row is "4   A dog runs across the grass .". Any other row is returned unchanged.
    """
    if [name.strip() for name in header] != ["image_name", "comment_number", "comment"] or len(record) != 2:
        return record
    found = re.fullmatch(r"\s*(\d+)\s+(\S.*)", record[1])
    return [record[0], found[1], found[2]] if found else record


def read_split_lists(
    folders: Iterable[Path], names: Mapping[str, Iterable[str]], key: Callable[[str], str]
) -> dict[str, str]:
    """Maps names to splits, from lists with one name per line. ``names``: the possible file names of each split's list.

    For each split, uses the first list that exists in any of the folders. Raises `UsageError` for a name in two lists.
    """
    places = list(folders)
    found: dict[str, str] = {}
    for split, files in names.items():
        path = next((folder / file for file in files for folder in places if (folder / file).is_file()), None)
        for line in read_text(path).split("\n") if path else ():
            name = key(line.strip())
            if name and found.setdefault(name, split) != split:
                raise UsageError(f"{path}: {name} is already in the split '{found[name]}'")
    return found


GUESSED_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", "")
ENOUGH_HITS = 200  # files found: enough to determine the naming scheme
MOST_ROWS = 5_000  # rows to examine if hardly any file exists
Naming = Callable[[str, int], str]


def url_file_name(url: str) -> str:
    """Returns the file name in a URL: ``cat.jpg`` for ``https://a.org/b/cat.jpg?w=1``."""
    try:
        return Path(unquote(urlsplit(url).path)).name  # only a name, even if the URL encodes slashes
    except ValueError:  # not a URL
        return ""


def _crc(url: str) -> int:
    return zlib.crc32(url.encode())


NAMINGS: dict[str, Naming] = {
    "crc": lambda url, row: str(_crc(url)),
    "row and crc": lambda url, row: f"{row}_{_crc(url)}",
    "md5": lambda url, row: hashlib.md5(url.encode(), usedforsecurity=False).hexdigest(),
    "sha1": lambda url, row: hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(),
    "sha256": lambda url, row: hashlib.sha256(url.encode()).hexdigest(),
    "img2dataset": lambda url, row: f"{row // 10_000:05d}/{row:09d}",
    "nine digits": lambda url, row: f"{row:09d}",
    "eight digits": lambda url, row: f"{row:08d}",
    "image_row": lambda url, row: f"image_{row}",
    "last part": lambda url, row: Path(url_file_name(url)).stem,
    "row": lambda url, row: str(row),
}


class DownloadedFiles:
    """Files in a folder, found by the URLs that they were downloaded from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._naming = NAMINGS["last part"]

    def learn(self, rows: Iterable[tuple[str, int]]) -> None:
        """Chooses the naming scheme that finds the most files, given (URL, row number from 0) for some rows."""
        hits: Counter[str] = Counter()
        for looked, (url, row) in enumerate(rows):
            for name, naming in NAMINGS.items():
                hits[name] += self._find(naming, url, row) is not None
            if looked >= MOST_ROWS or max(hits.values()) >= ENOUGH_HITS:
                break
        if hits and (best := hits.most_common(1)[0])[1]:
            self._naming = NAMINGS[best[0]]

    def path(self, url: str, row: int) -> Path:
        """Returns the file of a URL, or the path it would have if it had been downloaded."""
        found = self._find(self._naming, url, row)
        return found or self._folder / (
            self._naming(url, row) + (Path(url_file_name(url)).suffix or GUESSED_SUFFIXES[0])
        )

    def _find(self, naming: Naming, url: str, row: int) -> Path | None:
        stem = naming(url, row)
        if not stem:
            return None
        suffix_of_url = Path(url_file_name(url)).suffix
        for suffix in (suffix_of_url, *GUESSED_SUFFIXES) if suffix_of_url not in GUESSED_SUFFIXES else GUESSED_SUFFIXES:
            path = f"{self._folder}/{stem}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113 (a Path for every name takes longer than the look)
                return Path(path)
        return None


COLUMN_KEYS = {
    **IMAGES,
    "image": "column of the pictures",
    "captions": "columns of the captions: `title,alt`",
    "id": "column of the ids",
}
IDS = ("id", "image_id", "key", "__key__")
SPLITS = ("split",)
MAX_PATH = 4096  # characters of a path or URL


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
        """Chooses columns by the options, else by common names. ``image``: a column known to hold pictures.

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
        """Returns every column except the picture's, each once."""
        return list(dict.fromkeys(filter(None, [*self.captions, self.id, self.split, *self.flags])))

    def references(self, row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """Returns a row's captions: texts, lists of texts or of ``{"raw": text}``; in CSV as JSON, Python or NumPy."""
        flags = {flag: row[flag] for flag in self.flags}
        return tuple(text for name in self.captions for text in texts_of(row[name], f"{where}, column '{name}'", flags))

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """Returns the id of a row, or ``otherwise`` if no column has it."""
        value = row[self.id] if self.id else None
        return otherwise if value is None or value == "" or value != value else id_text(value)

    def split_of(self, row: Mapping[str, Any], otherwise: str = "") -> str:
        """Returns the split of a row by its standard name."""
        return normalize_split(str(row[self.split] or "")) if self.split else otherwise


def texts_of(value: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns the captions in a cell (see `Columns.references`); ``record`` may hold VizWiz's flags.

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
    """Finds the picture file of a row: by its path inside a folder, or as a download from a URL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fetched = DownloadedFiles(folder)

    def picture(self, value: Any, number: int, where: str) -> tuple[FilePicture, str]:
        """Returns the picture for a path or URL, and its default id. ``number``: the row number, from 0."""
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
    """Returns the encoded picture of a cell: bytes, base64, a path, ``{"bytes": …, "path": …}`` with one of these, or a
    list with one. Raises `PictureError`.
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
    """Returns the error for a column that cannot hold pictures."""
    return UsageError(
        f"{spec}: the column '{column}' contains {kind}, but no pictures (bytes, paths or URLs); "
        f"available columns: {', '.join(names)}; add image=COLUMN"
    )


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
