"""What every reader shares: the options of a specification, splits and parts, what is on disk, text and JSON files."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.data.dataset import Skipped, select_items
from tellapart.data.images.pictures import FilePicture
from tellapart.data.records import caption_texts
from tellapart.errors import UsageError, nearest
from tellapart.types import Item
from tellapart.utils.text import clean_text, parse_json


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
    import numpy as np

    hashes = (int.from_bytes(hashlib.blake2b(utf8_bytes(item.id)).digest()[:8]) for item in items)
    order = np.argsort(np.fromiter(hashes, np.uint64, len(items)), kind="stable")
    kept = np.sort(order[np.isin(np.arange(len(items)) % parts + 1, list(chosen))])
    return select_items(items, map(int, kept))


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
    """Whether its file is there and not empty; ``missing`` says so where not. A picture that is no file is there."""
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


def picture_folder(options: Options, *candidates: Path) -> Path:
    """``images=FOLDER``; else the first of the candidates that is there, or the first of all: a message names it."""
    if chosen := options.text("images"):
        return Path(chosen).expanduser()
    return next((folder for folder in candidates if folder.is_dir()), candidates[0])


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
    """A UTF-8 file (a byte order mark is dropped), or a `UsageError` that names it."""
    with usage_errors(path):
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


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
    """The captions in a value (`caption_texts`), each on one line without blanks around it; empty ones are dropped.

    Raises `UsageError` that begins with ``where``.
    """
    joined = (" ".join(clean_text(caption).split()) for caption in caption_texts(captions, where))
    return tuple(caption for caption in joined if caption)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A sorting key under which ``2.jpg`` comes before ``10.jpg``."""
    return [(0, int(run), "") if run.isdecimal() else (1, 0, run.casefold()) for run in re.split(r"(\d+)", text)]
