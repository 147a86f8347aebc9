"""Data sets: a specification ``kind:path?key=value`` to items in a fixed order, and what was left out.

`tellapart.data` has the grammar. From top to bottom: `Skipped` and `Dataset`; what every reader shares (`Options`,
splits and parts, what is on disk, text and JSON files); `READERS`, the table of what can stand before the colon;
`open_data` and `open_many`; descriptions joined from references (``describe=``); pictures beside a test set.

A reader is a module of `tellapart.data.readers`, an entry point of the group ``tellapart.readers`` in an installed
package (which loads to a `Reader`, or to its function), or an entry that a program registers.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import gzip
import hashlib
import math
import os
import re
import shlex
import zlib
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, count, islice
from pathlib import Path, PurePath
from typing import Any, overload
from urllib.parse import quote, unquote

import numpy as np
from PIL import Image

from tellapart.data.caption_matching import MAX_SHOWN, KnownIds, match_ids
from tellapart.data.pictures import CLIP_SUFFIXES, SUFFIXES, UNSUPPORTED_SUFFIXES, FilePicture
from tellapart.data.records import MarkedText, caption_texts
from tellapart.errors import PictureError, TellapartError, UsageError, nearest
from tellapart.types import Item
from tellapart.utils.messages import clean_text, parse_json
from tellapart.utils.registry import Entry, Registry


class Skipped(Sequence[tuple[str, str]]):
    """The items that a job left out, as (name, reason), each name once. Commands print `line` at the end.

    Beyond ``MAX_NAMED`` names the others are only counted: a third of a web corpus may be gone.
    """

    MAX_NAMED = 10_000

    def __init__(self, entries: Iterable[tuple[str, str]] = ()) -> None:
        self._reasons: dict[str, str] = {}
        self._unnamed = 0
        for name, reason in entries:
            self.add(name, reason)

    def add(self, name: str, reason: str) -> None:
        """Remember one. A name that is here already keeps its first reason."""
        if name in self._reasons or len(self._reasons) < self.MAX_NAMED:
            self._reasons.setdefault(name, reason)
        else:
            self._unnamed += 1

    def extend(self, others: Skipped) -> None:
        """Remember all of them."""
        for name, reason in others:
            self.add(name, reason)
        self._unnamed += others._unnamed

    def add_error(self, name: str, error: PictureError) -> None:
        """Remember a `PictureError` of that picture; its line is usually ``name: reason``."""
        self.add(name, str(error).removeprefix(f"{name}: "))

    def line(self, total: int, *, what: str = "pictures could not be read", shown: int = 5) -> str | None:
        """Such as ``3 of 1,000 pictures could not be read: a.jpg (truncated), …``; None where all went well."""
        if not self._reasons:
            return None
        some = ", ".join(f"{name} ({reason})" for name, reason in list(self)[:shown])
        more = f", and {len(self) - shown:,} more" if len(self) > shown else ""
        return f"{len(self):,} of {total:,} {what}: {some}{more}"

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        return list(self._reasons.items())[index]

    def __len__(self) -> int:
        return len(self._reasons) + self._unnamed

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._reasons.items())

    def __repr__(self) -> str:
        return f"Skipped({list(self)!r})"


class OnDemand(Sequence[Item]):
    """Items that are created on access and not kept."""

    @abstractmethod
    def subset(self, indices: Iterable[int]) -> OnDemand:
        """The items at these places, in this order, again on demand."""


def select_items(items: Sequence[Item], indices: Iterable[int]) -> Sequence[Item]:
    """The items at these places, in this order: a list of a list, on demand of those on demand."""
    return items.subset(indices) if isinstance(items, OnDemand) else [items[index] for index in indices]


class Dataset(Sequence[Item]):
    """Items in a fixed order. Slicing gives a data set again.

    ``spec`` is what was opened; ``missing`` what its files name and the disk does not have (known at
    opening); ``unreadable`` the pictures that turned out damaged since (`load_image` and the commands add
    to it). ``items`` may be any sequence: a reader that makes its items on demand is never copied to a list.
    """

    def __init__(self, spec: str, items: Sequence[Item], missing: Skipped | None = None) -> None:
        self.spec = spec
        self._items = items
        self.missing = missing if missing is not None else Skipped()
        self.unreadable = Skipped()

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Item | Dataset:
        return self.subset(range(len(self))[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def subset(self, indices: Iterable[int]) -> Dataset:
        """The items at these indices, in this order. `missing` and `unreadable` are shared with the whole."""
        part = Dataset(self.spec, select_items(self._items, indices), self.missing)
        part.unreadable = self.unreadable
        return part

    def load_image(self, item: Item) -> Image.Image | None:
        """The item's picture; None where it cannot be read: it is then listed in `unreadable`."""
        try:
            return item.picture.image()
        except PictureError as error:
            self.unreadable.add_error(item.picture.name, error)
            return None

    def report(self) -> list[str]:
        """The lines that a command prints at its end about what was left out; none where nothing was."""
        total = len(self) + len(self.missing)
        lines = [
            self.missing.line(total, what="were skipped: they could not be opened"),
            self.unreadable.line(len(self)),
        ]
        return [line for line in lines if line]

    def refuse_mostly_unreadable(self) -> None:
        """Raises `TellapartError` where more than half of the pictures could not be read: what was made of the rest
        is written, and hardly what was meant."""
        if 2 * len(self.unreadable) > len(self) > 0:
            raise TellapartError(
                f"{len(self.unreadable):,} of {len(self):,} pictures could not be read, more than half; what was made "
                "of the others is written; mend the pictures, or name those that can be read"
            )

    def __repr__(self) -> str:
        return f"Dataset({self.spec!r}, {len(self):,} items)"


@dataclass(frozen=True)
class Options:
    """The ``key=value`` pairs of a specification, as text, and what they are called in messages."""

    spec: str
    values: dict[str, str] = field(default_factory=dict)

    def text(self, key: str, default: str = "") -> str:
        """The value as written."""
        return self.values.get(key, default)

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number of at least ``least``, or a `UsageError`."""
        written = self.values.get(key)
        if written is None:
            return default
        if not re.fullmatch(r"[0-9_]+", written) or int(written) < least:
            raise UsageError(f"{self.spec}: {key}={written} is not a whole number of at least {least}")
        return int(written)

    def number(self, key: str, default: float) -> float:
        """A finite number, or a `UsageError`."""
        written = self.values.get(key)
        try:
            value = default if written is None else float(written)
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            raise UsageError(f"{self.spec}: {key}={written} is not a number")
        return value

    @property
    def splits(self) -> frozenset[str]:
        """The requested splits by their standard names; empty: all."""
        return frozenset(normalize_split(name) for name in self.text("split").split(",") if name.strip())


_SPLIT_NAMES = {
    "training": "train",
    "trn": "train",
    "restval": "train",  # Karpathy's split of COCO trains on it
    "dev": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "testing": "test",
    "tst": "test",
}


def normalize_split(name: str) -> str:
    """``train``, ``val`` or ``test`` for their many spellings; other names in lower case."""
    name = name.strip().lower()
    return _SPLIT_NAMES.get(name, name)


def split_records(content: Any) -> Any:
    """The records of ``{"train": [...], "test": [...]}`` as one list, each with its split; other content as it is."""
    if not isinstance(content, dict) or not {normalize_split(key) for key in content} <= {"train", "val", "test"}:
        return content
    if not all(isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in content.values()):
        return content
    return [{"split": split, **record} for split, part in content.items() for record in part]


def split_from_name(name: str) -> str:
    """The split that a file's name speaks of (``captions_val2017.json``, ``train-00000.tar``); "" where it does not."""
    found = re.search(r"(?<![a-z])(train(?:ing)?|val(?:id|idation)?|dev|test)(?![a-z])", name.lower())
    return normalize_split(found[1]) if found else ""


def choose_split(items: list[Item], options: Options) -> list[Item]:
    """The items of the requested splits. Raises `UsageError` for a split that no item has."""
    if not options.splits:
        return items
    check_splits({item.split for item in items}, options)
    return [item for item in items if item.split in options.splits]


def check_splits(found: set[str], options: Options) -> None:
    """A `UsageError` where a split is asked for that is not among those ``found``."""
    found = found - {""}
    if options.splits and not found:
        raise UsageError(f"{options.spec}: these files know no splits; leave out split={options.text('split')}")
    for split in sorted(options.splits - found):
        raise UsageError(f"{options.spec}: no item is in the split '{split}'{nearest(split, found)}")


def choose_part(items: Sequence[Item], options: Options) -> Sequence[Item]:
    """``part=i/n`` (or ``1,2/3``): the i-th of n disjoint parts of the list, in the list's order.

    The list is dealt out in the order of a hash of the ids, so parts differ by at most one in size, look
    alike, and are the same on every machine that has the same list.
    """
    written = options.text("part")
    if not written:
        return items
    match = re.fullmatch(r"(\d+(?:,\d+)*)/(\d+)", written)
    chosen = {int(part) for part in match[1].split(",")} if match else set()
    parts = int(match[2]) if match else 0
    if not chosen or not all(1 <= part <= parts for part in chosen):
        raise UsageError(f"{options.spec}: part={written} is not like part=1/2 or part=1,2/3 (parts count from 1)")

    hashes = (int.from_bytes(hashlib.blake2b(utf8_bytes(item.id)).digest()[:8]) for item in items)
    order = np.argsort(np.fromiter(hashes, np.uint64, len(items)), kind="stable")
    kept = np.sort(order[np.isin(np.arange(len(items)) % parts + 1, list(chosen))])
    return select_items(items, map(int, kept))


def choose_ids(items: Sequence[Item], options: Options, missing: Skipped) -> Sequence[Item]:
    """``ids=FILE``: the items that a list names (`read_id_list`), in the order of the data.

    Names are matched as captions are (`match_ids`). Those that the data does not have are added to ``missing``.
    """
    if not (written := options.text("ids")):
        return items
    wanted = read_id_list(Path(written).expanduser())
    paths = {item.id: str(item.picture.path) for item in items if isinstance(item.picture, FilePicture)}
    found, _ = match_ids(wanted, KnownIds(options.spec, [item.id for item in items], paths), written)
    for id_ in wanted:
        if id_ not in found:
            missing.add(id_, f"is listed in {written}, and not in the data")
    kept = set(found.values())
    return select_items(items, [place for place, item in enumerate(items) if item.id in kept])


ID_LISTS = ("imgids", "image_ids", "img_ids", "ids")  # CapEnrich's first


def read_id_list(path: Path) -> list[str]:
    """Reads a list of ids, each once: a JSON list, an object with one under ``imgids`` or ``ids``, or one a line.

    Raises `UsageError` for what is none.
    """
    if path.suffix.lower() in (".pkl", ".pickle"):
        names = f"{shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.json')))}"
        raise UsageError(
            f"{path}: opening a pickle runs what is in it, so it is not read here; if you trust it, type: python -c "
            '\'import json, pickle, sys; json.dump([str(id) for id in pickle.load(open(sys.argv[1], "rb"))'
            f'["imgids"]], open(sys.argv[2], "w"))\' {names}'
        )
    ids = _ids_in(read_json(path) if plain_suffix(path) == ".json" else read_text(path).split())
    if not ids:
        raise UsageError(f'{path}: not a list of ids; expected a JSON list, {{"imgids": [...]}}, or an id a line')
    return list(dict.fromkeys(ids))


def is_id_list(path: Path) -> bool:
    """Returns whether a JSON file is a list of ids (`read_id_list`), not one of records."""
    return plain_suffix(path) == ".json" and path.is_file() and bool(_ids_in(read_json(path)))


def _ids_in(content: Any) -> list[str]:
    if isinstance(content, dict):
        content = next((content[key] for key in ID_LISTS if key in content), None)
    if not isinstance(content, list) or any(isinstance(id_, bool) or not isinstance(id_, str | int) for id_ in content):
        return []
    return [str(id_).strip() for id_ in content if str(id_).strip()]


def check_unique_ids(items: Iterable[Item], where: str) -> None:
    """A `UsageError` that names the ids which ``where`` has more than once."""
    double = [id_ for id_, count in Counter(item.id for item in items).items() if count > 1]
    if double:
        some = ", ".join(repr(id_) for id_ in double[:5]) + (", …" if len(double) > 5 else "")
        raise UsageError(f"{where}: {len(double):,} ids stand there more than once: {some}; give every picture its own")


def finish_items(
    items: list[Item], options: Options, where: str, missing: Skipped | None = None
) -> tuple[list[Item], Skipped]:
    """The last step of a reader: check for duplicate ids, keep the requested splits, and of these the files on disk."""
    check_unique_ids(items, where)
    missing = Skipped() if missing is None else missing
    return existing_items(choose_split(items, options), missing), missing


def existing_items(items: Iterable[Item], missing: Skipped) -> list[Item]:
    """The items whose file is there and not empty; the others are named in ``missing``."""
    return [item for item in items if has_file(item, missing)]


def has_file(item: Item, missing: Skipped) -> bool:
    """Returns whether its file is there and not empty; ``missing`` says so where not. A picture that is no file is
    there.
    """
    reason = missing_reason(item.picture.path) if isinstance(item.picture, FilePicture) else None
    if reason:
        missing.add(item.picture.name, reason)
    return not reason


# Suffixes of files that are still being downloaded.
PARTIAL_SUFFIXES = (".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp")


def missing_reason(path: Path) -> str | None:
    """Why there is no picture in this file (not there, empty, its download broken off); None where there may be one."""
    try:
        size = path.stat().st_size
    except ValueError:  # NUL, or half a character: no file is called so
        return "no file name"
    except OSError:
        part = next((suffix for suffix in PARTIAL_SUFFIXES if os.path.exists(f"{path}{suffix}")), None)  # noqa: PTH110 (quick)
        return f"its download was interrupted: only {path.name}{part} is there" if part else "no such file"
    return None if size else "empty file"


SAMPLED_NAMES = 50  # pictures of a list that are looked for in each folder that may have them


def picture_folder(options: Options, *candidates: Path, names: Iterable[str] = ()) -> Path:
    """Returns ``images=FOLDER``, else the folder of the candidates that has the pictures.

    ``names``: those of the first pictures; the first folder with one of them is taken. Without names, or where no
    folder has one, it is the first folder that is there, else the first of all, which a message names.
    """
    if chosen := options.text("images"):
        return Path(chosen).expanduser()
    folders = [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]
    some = list(islice(names, SAMPLED_NAMES))
    holding = (folder for folder in folders if any((folder / name).is_file() for name in some))
    return next(holding, next(iter(folders), candidates[0]))


MAX_UNPACKED_BYTES = 8 << 30


def refuse_unread(path: Path) -> None:
    """A `UsageError` that says how to convert it, for a file of a kind that is not opened: a pickle, a zip."""
    if path.suffix.lower() in (".pkl", ".pickle"):
        names = f"{shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.json')))}"
        raise UsageError(
            f"{path}: opening a pickle runs what is in it, so it is not read here; if you trust it, type: python -c "
            f'\'import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], "rb")), open(sys.argv[2], "w"))\' '
            f"{names}"
        )
    if path.suffix.lower() == ".zip":
        names = f"{shlex.quote(str(path))} -d {shlex.quote(str(path.with_suffix('')))}"
        raise UsageError(f"{path}: an archive is not read here; name the folder that this makes of it: unzip {names}")


def plain_suffix(path: Path) -> str:
    """The suffix of a file without a ``.gz`` after it, in lower case."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def read_bytes(path: Path) -> bytes:
    """A file's content, unpacked where it is ``.gz``. Raises `OSError`."""
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    with gzip.open(path) as file:
        try:
            data = file.read(MAX_UNPACKED_BYTES + 1)
        except (EOFError, zlib.error) as error:
            raise OSError(f"damaged ({error})") from None
    if len(data) > MAX_UNPACKED_BYTES:
        raise OSError(f"is more than {MAX_UNPACKED_BYTES >> 30} GiB when unpacked")
    return data


def read_text(path: Path) -> str:
    """The text of a file (`decode_text`), or a `UsageError` that names it."""
    with usage_errors(path):
        return decode_text(read_bytes(path))


UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # Excel's "Unicode text", Notepad's "UTF-16"


def decode_text(data: bytes) -> str:
    """Decodes what people write: UTF-8, or UTF-16 that begins with its byte order mark. Lines end in a line feed.

    Raises UnicodeDecodeError: another encoding is not guessed, for a wrong guess changes letters.
    """
    text = data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_hidden(inside: PurePath) -> bool:
    """Returns whether a path inside a folder is hidden or in a hidden folder: ``._1.txt``, ``.ipynb_checkpoints``."""
    return any(part.startswith(".") and part != ".." for part in inside.parts)


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """The files of these patterns in a folder, in natural order; hidden ones are left out."""
    found = {file for pattern in patterns for file in folder.glob(pattern) if not is_hidden(file.relative_to(folder))}
    return sorted((file for file in found if not file.is_dir()), key=lambda file: natural_key(str(file)))


@contextmanager
def usage_errors(path: Path) -> Iterator[None]:
    """Turns errors of opening and decoding a file into a `UsageError` that names it."""
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder where a file was expected") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 (byte {error.start:,}); convert it to UTF-8") from None
    except ValueError as error:  # NUL in the path
        raise UsageError(f"{path}: cannot be read ({error})") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def utf8_bytes(text: str) -> bytes:
    """UTF-8, also of names that are no proper text."""
    return text.encode("utf-8", "surrogatepass")


def read_json(path: Path) -> Any:
    """A JSON file, or a `UsageError` that names it and the line at fault."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error})") from None


def clean_captions(captions: Any, where: str) -> tuple[str, ...]:
    """The captions in a value (`caption_texts`), each on one line without blanks around it.

    Empty ones and those that VizWiz leaves out are dropped. Raises `UsageError` that begins with ``where``.
    """
    found = caption_texts(captions, where)
    if error := next((text.error for text in found if isinstance(text, MarkedText) and text.error), None):
        raise error
    joined = (" ".join(clean_text(text).split()) for text in found if not (isinstance(text, MarkedText) and text.flag))
    return tuple(caption for caption in joined if caption)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A sorting key under which ``2.jpg`` comes before ``10.jpg``."""
    return [(0, int(run), "") if run.isdecimal() else (1, 0, run.casefold()) for run in re.split(r"(\d+)", text)]


MOST_FILES = 1_000_000  # that a pattern in braces stands for
MOST_BRACES, LONGEST_NUMBER = 20, 18  # pairs, digits


def expand_pattern(pattern: Path) -> list[Path]:
    """The files of ``shard-{00..12}.tar``, ``{a,b}.tar`` or ``shard-*.tar``, in natural order; or the plain path."""
    paths = [pattern] if pattern.exists() else [Path(written) for written in expand_braces(str(pattern))]
    found = [
        file
        for path in paths
        for file in (sorted(_glob(path), key=lambda file: natural_key(str(file))) if _is_pattern(path) else [path])
    ]
    if not found:
        raise UsageError(f"{pattern}: no such files")
    return found


def _is_pattern(path: Path) -> bool:
    return any(mark in str(path) for mark in "*[") and not path.exists()


def _glob(path: Path) -> list[Path]:
    pattern = str(path.relative_to(path.anchor))
    found = Path(path.anchor or ".").glob(pattern)
    return [file for file in found if not file.name.startswith(".") or path.name.startswith(".")]


def expand_braces(text: str) -> list[str]:
    """``a{1..3}`` as a1, a2, a3, and ``{a,b}`` as a, b. Raises `UsageError` for more than `MOST_FILES` names."""
    pairs = re.findall(r"\{([^{}]*)\}", text)
    if len(pairs) > MOST_BRACES or math.prod(_alternatives(inside) for inside in pairs) > MOST_FILES:
        raise UsageError(f"{text}: stands for more than {MOST_FILES:,} files; name them with a * instead")
    return _expand(text)


def _alternatives(inside: str) -> int:
    """Returns how many texts a pair of braces stands for, at least 1."""
    first, last = _range(inside) or ("1", "1")
    if max(len(first), len(last)) > LONGEST_NUMBER:
        return MOST_FILES + 1
    return max(1, int(last) - int(first) + 1, inside.count(",") + 1)


def _range(inside: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", inside)
    return (found[1], found[2]) if found else None


def _expand(text: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    if ends := _range(found[1]):
        parts = [f"{number:0{len(ends[0])}d}" for number in range(int(ends[0]), int(ends[1]) + 1)]
    elif "," in found[1]:
        parts = found[1].split(",")
    else:
        return [text]
    return [whole for part in parts for whole in _expand(text[: found.start()] + part + text[found.end() :])]


ReadFunction = Callable[[Path, Options], tuple[Sequence[Item], Skipped]]


@dataclass(frozen=True, kw_only=True)
class Reader(Entry[ReadFunction]):
    """One layout of a data set.

    ``factory`` reads a path, with the options of its specification, to items and to what it had to leave out.
    ``needs``: extras that must be installed.

    keys: the keys that it knows beside `COMMON_KEYS`, each with one line of help. needs_path: False where nothing is
    read from disk. layouts: (what a user has, what to type), for the docs. suffixes: of files that are of this kind
    without ``kind:``. json_layout: whether the content of a ``.json`` file is of this kind. folder_markers: names of
    files that make a folder one of this kind; folder_suffixes: suffixes that do, where it holds no picture.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    needs_path: bool = True
    layouts: tuple[tuple[str, str], ...] = ()
    suffixes: tuple[str, ...] = ()
    json_layout: Callable[[Any], bool] | None = None
    folder_markers: tuple[str, ...] = ()
    folder_suffixes: tuple[str, ...] = ()

    @property
    def read(self) -> ReadFunction:
        """The function that reads."""
        return self.factory


READERS: Registry[Reader] = Registry(
    "kind of data", Reader, group="tellapart.readers", package="tellapart.data.readers"
)

# Keys that every kind knows, in the order in which they apply.
COMMON_KEYS: Mapping[str, str] = {
    "split": "`test`; `dev`, `valid` and `validation` are `val`; several: `train,val`",
    "ids": "`list.json`: the pictures that a list names, matched as captions are: ids, file names or COCO's numbers",
    "part": "`1/3`: one of three disjoint parts, the same on every machine; two of them: `1,2/3`",
    "limit": "`100`: the first hundred",
    "describe": "`in this picture`: each picture's references joined to one text behind this prompt, in place of them",
}
IMAGES = {"images": "the folder of the pictures; by default where the layout usually has them"}


def recognize(fits: Callable[[Reader], bool], *, plugins: bool = True) -> str | None:
    """The first kind that fits. Plug-ins are asked, and loaded, only where no reader of the package fits."""
    readers = chain(_builtin(), _installed()) if plugins else _builtin()
    return next((reader.name for reader in readers if fits(reader)), None)


def known_suffixes() -> list[str]:
    """The suffixes of files whose kind need not be typed."""
    return [suffix for reader in chain(_builtin(), _installed()) for suffix in reader.suffixes]


def layouts_table() -> str:
    """A Markdown table of the layouts, by kind."""
    rows = [
        f"| `{reader.name}` | {have} | {typed} | {', '.join(f'`{extra}`' for extra in reader.needs)} |"
        for reader in _builtin()
        for have, typed in reader.layouts
    ]
    return "\n".join(["| kind | what you have | what to type | extra |", "|---|---|---|---|", *rows]) + "\n"


def keys_table() -> str:
    """A Markdown table of the keys and the kinds that know them."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for reader in _builtin():
        for key, text in reader.keys.items():
            kinds.setdefault((key, text), []).append(f"`{reader.name}`")
    common = [f"| `{key}` | all | {text} |" for key, text in COMMON_KEYS.items()]
    rows = [f"| `{key}` | {', '.join(names)} | {text} |" for (key, text), names in kinds.items()]
    return "\n".join(["| key | kinds | value |", "|---|---|---|", *common, *rows]) + "\n"


def kinds_help() -> str:
    """A paragraph that says each kind, plug-ins included, for the help of a command."""
    broken: list[str] = []
    kinds = [f"{reader.name} ({reader.help})" for reader in _by_name(READERS.entries(broken=broken.append))]
    return f"Kinds of data, as kind:path?key=value: {'; '.join([*kinds, *broken])}."


def _by_name(readers: Iterable[Reader]) -> list[Reader]:
    """The registry has them in the order of import."""
    return sorted(readers, key=lambda reader: reader.name)


def _builtin() -> Iterator[Reader]:
    """The readers of the package, and those that the program registered."""
    installed = READERS.installed()
    return (READERS.find(name) for name in sorted(READERS) if name not in installed)


def _installed() -> Iterator[Reader]:
    """Those of installed packages; one that cannot be loaded is passed over, as long as nobody names it."""
    for name in READERS.installed():
        with contextlib.suppress(UsageError):
            yield READERS.find(name)


_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ARTICLES = frozenset(("a", "an", "the"))
_END = ".!?,; "


class Changed(OnDemand):
    """Items as ``change`` returns them, each when it is asked for."""

    def __init__(self, items: Sequence[Item], change: Callable[[Item], Item]) -> None:
        self._items, self._change = items, change

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Changed: ...
    def __getitem__(self, index: int | slice) -> Item | Changed:
        if isinstance(index, slice):
            return self.subset(range(len(self))[index])
        return self._change(self._items[index])

    def __len__(self) -> int:
        return len(self._items)

    def subset(self, indices: Iterable[int]) -> Changed:
        """Returns the items at these places, in this order, again on demand."""
        return Changed(select_items(self._items, indices), self._change)


_BLIP_MARKS = str.maketrans(dict.fromkeys('.!"()*#:;~', " "))
BLIP_WORDS = 30


def blip_clean(text: str) -> str:
    """Returns a reference as BLIP learns it (`pre_caption` of its program): lower case, without ``.!"()*#:;~``, at most
    30 words."""
    return " ".join(text.lower().translate(_BLIP_MARKS).split()[:BLIP_WORDS])


def blip_cleaned(item: Item) -> Item:
    """Returns an item with its references cleaned by `blip_clean`; those of which nothing is left are dropped."""
    return replace(item, references=tuple(filter(None, map(blip_clean, item.references))))


def described(item: Item, prompt: str) -> Item:
    """Returns an item whose references are descriptions that begin with ``prompt``; its id ends in ``#description``.

    Of a picture with n references that differ there are n descriptions, each of which begins with another reference.
    A picture without references keeps none.
    """
    return replace(item, id=f"{item.id}#description", references=descriptions(item.references, prompt))


def descriptions(references: Sequence[str], prompt: str) -> tuple[str, ...]:
    """The references as sentences of one text behind the prompt, once from each on; none where there are none.

    One that says nothing more than another, articles aside, is left out.
    """
    sentences = [text for text in (reference.strip().rstrip(_END) for reference in distinct(references)) if text]
    turns = (sentences[start:] + sentences[:start] for start in range(len(sentences)))
    return tuple(f"{prompt} {'. '.join([_lower_first(first), *others])}." for first, *others in turns)


def distinct(references: Sequence[str]) -> list[str]:
    """Those whose words do not all stand in another one; of those with the same words the first."""
    words = [frozenset(_WORD.findall(text.lower())) - _ARTICLES for text in references]
    return [
        text
        for place, text in enumerate(references)
        if words[place]
        and not any(
            words[place] < other or (words[place] == other and before < place) for before, other in enumerate(words)
        )
    ]


def _lower_first(sentence: str) -> str:
    """ "A dog" as "a dog", "USA" as it is."""
    capital = sentence[:1].isupper() and not sentence[1:2].isupper()
    return sentence[0].lower() + sentence[1:] if capital else sentence


def open_data(spec: str) -> Dataset:
    """The data set of a specification (the module's docstring has the grammar). Raises `UsageError`."""
    found = expanded([spec])
    return _open(spec) if found == [spec] else _parts(found, spec)


def expanded(specs: Sequence[str]) -> list[str]:
    """The specifications with a pattern of picture files ('photos/*.jpg') as the files that it matches, in order."""
    return [each for spec in specs for each in (_pictures_like(spec) or [spec])]


def _pictures_like(spec: str) -> list[str]:
    if not any(mark in spec for mark in "*?[") or Path(spec).exists():
        return []
    found = sorted(glob.glob(str(Path(spec).expanduser()), recursive=True))  # noqa: PTH207 (Path.glob takes no "/…")
    return found if any(is_picture(Path(each)) for each in found) else []


def _open(spec: str, empty_part: bool = False) -> Dataset:
    """``empty_part``: a part may have no items, where others stand beside it."""
    kind, path, options = parse(spec)
    items, missing = READERS[kind].read(path, options)
    items = choose_part(choose_ids(items, options, missing), options)
    if "limit" in options.values:
        items = items[: options.integer("limit", 0, least=1)]
    if not len(items) and not (empty_part and "part" in options.values):
        raise UsageError(_nothing(spec, kind, options, missing))
    if prompt := options.text("describe").strip():
        items = Changed(items, partial(described, prompt=prompt))
    return Dataset(spec, items, missing)


def open_many(specs: Sequence[str]) -> Dataset:
    """Several specifications, folders or picture files as one data set, in that order.

    One specification is `open_data`. Of several, the items of a folder without a kind get the path as it was typed
    before their id, so that two folders may hold the same names; ids that are double all the same are a `UsageError`.
    One of several parts may be empty. A pattern such as 'photos/*.jpg' stands for its files.
    """
    if len(specs) == 1:
        return open_data(specs[0])
    if not specs:
        raise UsageError("no pictures were named; type a folder, files, or kind:path")
    return _parts(expanded(specs), " ".join(specs))


def _parts(specs: Sequence[str], typed: str) -> Dataset:
    items: list[Item] = []
    missing = Skipped()
    for spec in specs:
        part = _open(spec, empty_part=True)
        bare = Path(spec).expanduser()
        folder = Path(spec if bare.exists() else _split_query(spec)[0])
        for item in part:
            if folder.expanduser().is_dir():
                item = replace(item, id=(folder / item.id).as_posix())
            items.append(replace(item, id=Path(spec).as_posix()) if is_picture(bare) else item)
        missing.extend(part.missing)
    if not items:
        raise UsageError(f"{typed}: no items in these parts; name more pictures, or fewer parts")
    check_unique_ids(items, typed)
    return Dataset(typed, items, missing)


def parse(spec: str) -> tuple[str, Path, Options]:
    """A specification as (kind, path, options), with kind and keys checked. Raises `UsageError`."""
    if not spec:
        raise UsageError(f"an empty specification; type kind:path, where kind is one of {', '.join(sorted(READERS))}")
    body, query = (spec, "") if Path(spec).exists() else _split_query(spec)
    kind, colon, rest = body.partition(":")
    if not colon or Path(body).exists() or kind not in READERS:
        kind, rest = _bare_kind(spec, body, kind if colon else ""), body
    options = Options(spec, _values(spec, query))
    reader = READERS.find(kind)
    known = (*COMMON_KEYS, *reader.keys)
    for key in options.values:
        if key not in known:
            raise UsageError(f"{spec}: '{kind}:' has no key '{key}'{nearest(key, known)}")
    if not rest and reader.needs_path:
        raise UsageError(f"{spec}: no path after '{kind}:'")
    return kind, Path(rest).expanduser(), options


def listed(spec: str, path: Path) -> str:
    """Returns the specification of the pictures that a list of ids names, of all splits of ``spec``."""
    body, query = (spec, "") if Path(spec).exists() else _split_query(spec)
    kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in _CHOOSING]
    return f"{body}?{'&'.join([*kept, f'ids={quote(str(path))}'])}"


_CHOOSING = ("split", "ids", "part", "limit", "only")  # keys that take some of the items


def _split_query(spec: str) -> tuple[str, str]:
    body, mark, query = spec.rpartition("?")
    return (body, query) if mark else (spec, "")


def _values(spec: str, query: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{spec}: '{pair}' is not key=value")
        if key in values:
            raise UsageError(f"{spec}: the key '{key}' stands there twice")
        values[key] = unquote(value)
    return values


def _bare_kind(spec: str, body: str, kind: str) -> str:
    """The kind of a path without one; a `UsageError` where there is no such path or its kind is unclear."""
    path = Path(body).expanduser()
    if path.is_dir():
        return _folder_kind(path)
    if is_picture(path):
        return "folder"
    suffix, is_file = plain_suffix(path), path.is_file()
    if is_file:
        refuse_unread(path)
    if is_file or any(mark in body for mark in "*{["):
        if suffix and (by_suffix := recognize(lambda reader: suffix in reader.suffixes)):
            return by_suffix
        if is_file and suffix == ".json":
            return _json_kind(path, spec)
        if is_file:
            raise UsageError(
                f"{spec}: neither a picture, a folder of pictures, nor one of {' '.join(known_suffixes())}"
            )
    if len(kind) > 1 and "/" not in kind:
        raise UsageError(f"{spec}: unknown kind of data '{kind}'{nearest(kind, READERS)}")
    kinds = ", ".join(sorted(READERS))
    raise UsageError(f"{spec}: no such file or folder{_similar_path(path)} (or type kind:path, kinds: {kinds})")


def _similar_path(path: Path) -> str:
    """``; did you mean 'photos'?``, of the names beside it; empty without one."""
    try:
        names = [file.name for file in path.parent.iterdir() if not file.name.startswith(".")]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / close[0]}'?" if close else ""


def _json_kind(path: Path, spec: str) -> str:
    """The kind of a JSON file, by its content."""
    content = read_json(path)
    if found := recognize(lambda reader: reader.json_layout is not None and reader.json_layout(content)):
        return found
    raise UsageError(f"{spec}: which layout is this JSON file? type coco:{spec} or karpathy:{spec}")


def _folder_kind(folder: Path) -> str:
    """By a marker file; else a folder that holds a picture is one of pictures; else by the suffixes in it."""

    def has_marker(reader: Reader) -> bool:
        return any((folder / name).is_file() for name in reader.folder_markers)

    if found := recognize(has_marker, plugins=False):
        return found
    try:
        names = {file.name for file in folder.iterdir()}
    except OSError:  # its reader says why
        return "folder"
    suffixes = {Path(name).suffix.lower() for name in names}
    stems = {Path(name).stem for name in names if name.endswith(".parquet")}
    if suffixes & (SUFFIXES | CLIP_SUFFIXES) or stems & names:  # img2dataset: 00000.parquet says what is in 00000/
        return "folder"
    if {f"{stem}.tar" for stem in stems} & names:  # or in 00000.tar
        return "webdataset"
    return recognize(lambda reader: has_marker(reader) or bool(suffixes & {*reader.folder_suffixes})) or "folder"


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES | CLIP_SUFFIXES | UNSUPPORTED_SUFFIXES and path.is_file()


def _nothing(spec: str, kind: str, options: Options, missing: Skipped) -> str:
    left_out = missing.line(len(missing), what="were left out", shown=2)
    if left_out and "images" in READERS[kind].keys and "images" not in options.values:
        folders = dict.fromkeys(str(Path(name).parent) for name, _ in missing if "/" in name)
        looked = f"; looked in {', '.join(list(folders)[:MAX_SHOWN])}" if folders else ""
        return f"{spec}: no items; {left_out}{looked}; if the pictures are elsewhere, type images=FOLDER"
    if left_out:
        return f"{spec}: no items; {left_out}"
    if kind == "folder":
        return f"{spec}: no pictures in this folder ({' '.join(sorted(SUFFIXES))} are looked for)"
    return f"{spec}: no items"


def beside(others: Iterable[Item], known: Iterable[Item]) -> list[Item]:
    """Those of ``others`` whose picture is none of ``known``, by content; files are read where their sizes are equal.

    Folders number their pictures from 0 again: another picture with an id of ``known`` gets one of its own, such as
    "7.jpg (2)". Pictures that cannot be read are kept, so that their reader reports them.
    """
    same_size: defaultdict[int | None, list[Item]] = defaultdict(list)
    taken = set()
    for item in known:
        same_size[_size(item)].append(item)
        taken.add(item.id)

    @cache
    def contents(size: int | None) -> set[str | None]:
        return {_content(item) for item in same_size[size]} - {None}

    found = []
    for item in others:
        size = _size(item)
        sizes = list(same_size) if size is None else [one for one in (size, None) if one in same_size]
        if sizes and any(_content(item) in contents(one) for one in sizes):
            continue
        if item.id in taken:
            item = replace(item, id=next(name for n in count(2) if (name := f"{item.id} ({n})") not in taken))
        taken.add(item.id)
        found.append(item)
    return found


def _size(item: Item) -> int | None:
    """The bytes of a picture that is a file of its own; None where its size is not known without reading it."""
    try:
        return item.picture.signature()[0] if isinstance(item.picture, FilePicture) else None
    except (PictureError, OSError):
        return None


def _content(item: Item) -> str | None:
    try:
        return item.picture.key()
    except (PictureError, OSError):
        return None
