"""Tables and other files of rows, whatever their format: rows found again by their place, and what columns mean.

Items are created on access: a million rows need no more memory than a thousand. A `RowSource` reads its file once from
end to end, and later any of its rows by its place. What has to be known of all rows (where each is, which of them speak
of the same picture, whether an id is there twice) is kept in an unnamed file on disk, 24 bytes a row. `LineSource` is
the source whose rows are lines of UTF-8 text, or records of several as CSV has them, found again by their byte.

`Columns` are recognized by common names, or named by the user: ``image=COLUMN``, ``captions=COLUMN`` (or several:
``captions=title,alt``), ``id=COLUMN``; one way for CSV, Parquet and datasets. `DownloadedFiles` finds what was fetched
from a list of addresses; every downloader has its own scheme:

| name (for row 12, from 0, of ``https://a.org/b/cat.jpg?w=1``) | who |
|---|---|
| ``cat.jpg`` | wget, curl |
| ``12.jpg``, ``image_12.jpg``, ``00000012.jpg`` | by row; eight digits: ClipCap's own program |
| ``00000/000000012.jpg`` | img2dataset, ten thousand a folder |
| ``3632233996``, ``12_3632233996`` | CRC-32 of the address: ViLBERT's program and its descendants |
| ``….jpg`` | MD5, SHA-1 or SHA-256 of the address |

Any suffix of a picture or none. Which one it is, is learned from the files that are there.
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

RowPosition = tuple[int, int]  # where a row is (in bytes, or by file and row), and its number, from 1
RECORD = struct.Struct(">QQQ")
CHUNK = 1 << 16  # records looked at together


class RowSource(Protocol):
    """A file of rows, or several."""

    name: str

    def scan(self, missing: Skipped) -> Iterator[tuple[RowPosition, Item]]:
        """Every row once, places ascending. Adds rows without a picture to ``missing``. Raises `UsageError`."""
        ...

    def read(self, places: Iterable[RowPosition]) -> Iterator[Item]:
        """The rows at these places, in this order; quick where they ascend."""
        ...


def stream_items(source: RowSource, options: Options, *, merge: bool) -> tuple[Sequence[Item], Skipped]:
    """The items of a source: those of the splits asked for whose picture is there, in the order of the rows.

    merge: rows of one id are one item with the captions of all, wherever they stand; else they are a `UsageError`.
    Where rows stand for themselves, ``limit=`` ends the reading early, and the rows after it are not checked.
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
    """Some of the items of a source, by their numbers in its index."""

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
        """The items at these places, in this order: eight bytes each."""
        return LazyItems(self._source, self._index, array("Q", (self._order[index] for index in indices)))

    def doubles(self) -> Iterator[Item]:
        """Every row of the items that have several."""
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
                    f"{self._source.name}: the id {first.id!r} stands for {first.picture.name} and for "
                    f"{other.picture.name}; give every picture its own"
                )
        captions = [caption for row in rows for caption in row.references]
        return first if len(rows) == 1 else replace(first, references=tuple(captions))


class RowIndex:
    """Records which rows make which item, in a file on disk: records of three numbers of 64 bits.

    Written: (hash of the id, place, row number). Sorted, the rows of one id stand together; then the hash gives way
    to the place of the id's first row, and sorted again the items stand in the order of the file. Two ids out of a
    million share a hash with a chance of 3e-8.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rows = 0
        self._records: Any = None  # rows × 3, big-endian: so that records sort as strings of bytes
        self._starts: Any = None  # where each item's first record is; None where every record is an item

    @classmethod
    def open(cls) -> RowIndex:
        """An empty one, in an unnamed file."""
        return cls(tempfile.TemporaryFile())  # open for as long as this is there

    def add(self, id_: str, place: RowPosition) -> None:
        """One row."""
        digest = hashlib.blake2b(utf8_bytes(id_), digest_size=8).digest()
        self._file.write(RECORD.pack(int.from_bytes(digest), *place))
        self._rows += 1

    def close(self) -> None:
        """All rows are there: from now on items can be asked for."""
        self._file.flush()
        if not self._rows:
            return
        self._sort()
        found = sum(int(first.sum()) for first in self._give_first_places())
        self._sort()
        if found < self._rows:
            self._note_starts()

    def __len__(self) -> int:
        """Items; rows while they are still added."""
        return self._rows if self._starts is None else len(self._starts)

    def count(self, number: int) -> int:
        """Returns how many rows this item has."""
        return self._span(number)[1] - self._span(number)[0]

    def places(self, number: int) -> Iterator[RowPosition]:
        """The rows of this item."""
        for row in range(*self._span(number)):
            _, place, row_number = self._records[row]
            yield int(place), int(row_number)

    def doubles(self) -> Iterator[int]:
        """The numbers of the items that have several rows."""
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
        """In place of each hash the place of its first row; yields, in chunks, which records are the first."""
        last_hash, last_place = None, 0
        for start in range(0, self._rows, CHUNK):
            chunk = self._records[start : start + CHUNK]
            hashes = chunk[:, 0].astype(np.uint64)
            first = np.append(last_hash is None or hashes[0] != last_hash, hashes[1:] != hashes[:-1])
            run = np.maximum.accumulate(np.where(first, np.arange(len(first)), -1))
            places = np.where(run < 0, np.uint64(last_place), chunk[:, 1].astype(np.uint64)[run])
            last_hash, last_place = hashes[-1], places[-1]
            chunk[:, 0] = places
            yield first

    def _note_starts(self) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (the map keeps it)
        for start in range(0, self._rows, CHUNK):
            chunk = self._records[start : start + CHUNK]
            (np.flatnonzero(chunk[:, 0] == chunk[:, 1]) + start).astype(np.uint64).tofile(file)
        file.flush()
        self._starts = np.memmap(file, dtype=np.uint64, mode="r")


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


@lru_cache(maxsize=2)
def _as_utf8(path: Path, signature: tuple[int, int]) -> bytes:
    return decode_text(path.read_bytes()).encode()


def open_lines(path: Path) -> BinaryIO:
    """Opens a text file, in UTF-8; the text of a file in UTF-16 is held in memory."""
    file = path.open("rb")
    if not file.read(2).startswith(UTF16_MARKS):
        return file
    with file:
        return io.BytesIO(_as_utf8(path, signature_of(path, str(path))))


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
        """Returns what a record means; None where it is to be passed over. Raises `UsageError` that begins with
        ``where``.
        """

    def encoded(self, record: Any) -> str:
        """The picture of a record that holds one in base64."""
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[RowPosition, Any]]:
        """Every record with its place; the header, where there is one, is counted and passed over."""
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
                    raise UsageError(f"{self.path}: has changed since it was opened; open it again")
                yield item

    def picture(self, place: RowPosition) -> bytes:
        """The bytes of the picture that the record at a place holds in base64. Raises ValueError and `UsageError`."""
        with usage_errors(self.path), open_lines(self.path) as file:
            return decode_base64(self.encoded(next(self.records(Lines(file, self.path, place[0])))))

    def _where(self, place: RowPosition) -> str:
        after = f" after byte {self._span[0]:,}" if self._span else ""
        return f"{self.path}, line {place[1]}{after}"


class EncodedCell(PackedPicture):
    """A picture that stands in a row in base64."""

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
    """Returns which split each name is in, by lists of a name a line: split to the file names that its list may have.

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


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", "")
ENOUGH_HITS = 200  # files found: by then it is clear how they are called
MOST_ROWS = 5_000  # looked at, where hardly any file is there
Naming = Callable[[str, int], str]


def url_file_name(url: str) -> str:
    """The name of the file that an address ends in: ``cat.jpg`` of ``https://a.org/b/cat.jpg?w=1``."""
    try:
        return Path(unquote(urlsplit(url).path)).name  # a name only, whatever an address has encoded
    except ValueError:  # not an address after all
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
    """The files in a folder by the addresses that they came from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._naming = NAMINGS["last part"]

    def learn(self, rows: Iterable[tuple[str, int]]) -> None:
        """Look at (address, row from 0) of some rows, and take the way by which the most files are found."""
        hits: Counter[str] = Counter()
        for looked, (url, row) in enumerate(rows):
            for name, naming in NAMINGS.items():
                hits[name] += self._find(naming, url, row) is not None
            if looked >= MOST_ROWS or max(hits.values()) >= ENOUGH_HITS:
                break
        if hits and (best := hits.most_common(1)[0])[1]:
            self._naming = NAMINGS[best[0]]

    def path(self, url: str, row: int) -> Path:
        """The file of an address, or where it would be if it had been fetched."""
        found = self._find(self._naming, url, row)
        return found or self._folder / (self._naming(url, row) + (Path(url_file_name(url)).suffix or SUFFIXES[0]))

    def _find(self, naming: Naming, url: str, row: int) -> Path | None:
        stem = naming(url, row)
        if not stem:
            return None
        suffix_of_url = Path(url_file_name(url)).suffix
        for suffix in (suffix_of_url, *SUFFIXES) if suffix_of_url not in SUFFIXES else SUFFIXES:
            path = f"{self._folder}/{stem}{suffix}"
            if os.path.isfile(path):  # noqa: PTH113 (a Path for every name takes longer than the look)
                return Path(path)
        return None


COLUMN_KEYS = {
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
    flags: tuple[str, ...] = ()  # VizWiz's

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
            flags=tuple(key for flag in VIZWIZ_FLAGS if (key := find_key((flag,), rest))),
        )

    def texts(self) -> list[str]:
        """Every column but the picture's, each once."""
        return list(dict.fromkeys(filter(None, [*self.captions, self.id, self.split, *self.flags])))

    def references(self, row: Mapping[str, Any], where: str) -> tuple[str, ...]:
        """The captions of a row: texts, lists of texts or of ``{"raw": text}``, in CSV as JSON, Python or NumPy."""
        flags = {flag: row[flag] for flag in self.flags}
        return tuple(text for name in self.captions for text in texts_of(row[name], f"{where}, column '{name}'", flags))

    def id_of(self, row: Mapping[str, Any], otherwise: str) -> str:
        """The id of a row, or ``otherwise`` where no column has it."""
        value = row[self.id] if self.id else None
        return otherwise if value is None or value == "" or value != value else id_text(value)

    def split_of(self, row: Mapping[str, Any], otherwise: str = "") -> str:
        """The split of a row, by its usual name."""
        return normalize_split(str(row[self.split] or "")) if self.split else otherwise


def texts_of(value: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The captions in a cell (see `Columns.references`); ``record`` may hold VizWiz's flags.

    Raises `UsageError` that begins with ``where``.
    """
    try:
        return clean_captions(value, where, record)
    except RowError:
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
        value = sole(value, where)
        if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_PATH:
            raise UsageError(f"{where}: a picture's path was expected, found {str(value)[:40]!r}; type image=COLUMN")
        value = value.strip()
        if "://" not in value[:12]:
            return picture_in(self._folder, value), value
        path = self._fetched.path(value, number)
        return picture_file(path), path.relative_to(self._folder).as_posix()

    def learn(self, values: Iterable[tuple[Any, int]]) -> None:
        """Look at some rows, to see what programs called the files that they fetched."""
        self._fetched.learn(
            (url, number)
            for value, number in values
            for url in (value if isinstance(value, list) else [value])
            if isinstance(url, str) and "://" in url[:12]
        )


def cell_bytes(value: Any, folder: Path, name: str) -> bytes:
    """The encoded bytes of a cell: bytes, base64, a path, ``{"bytes": …, "path": …}`` with one of these, or a list of
    one. Raises `PictureError`.
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
        raise PictureError(f"{name}: no picture in this row")
    return value


def not_a_picture(kind: str, column: str, spec: str, names: list[str]) -> UsageError:
    """Returns what to say of a column that cannot hold pictures."""
    return UsageError(
        f"{spec}: the column '{column}' holds {kind}, not pictures (bytes, paths or addresses); there are: "
        f"{', '.join(names)}; type image=COLUMN"
    )


def first_line(error: BaseException) -> str:
    """Returns what a library says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
