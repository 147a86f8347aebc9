"""Parses the ``key=value`` options of a specification, and selects items by split, part and list of ids."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.data.dataset import Skipped, select_items
from tellapart.data.pictures import FilePicture
from tellapart.data.text_files import plain_suffix, read_json, read_text, utf8_bytes
from tellapart.errors import UsageError, nearest
from tellapart.types import Item


@dataclass(frozen=True)
class Options:
    """The ``key=value`` pairs of a specification, as text, and their name in messages."""

    spec: str
    values: dict[str, str] = field(default_factory=dict)

    def text(self, key: str, default: str = "") -> str:
        """Returns the value as written."""
        return self.values.get(key, default)

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        """Returns an integer of at least ``least``. Raises `UsageError`."""
        written = self.values.get(key)
        if written is None:
            return default
        if not re.fullmatch(r"[0-9_]+", written) or int(written) < least:
            raise UsageError(f"{self.spec}: expected {key} to be an integer of at least {least}, got {written}")
        return int(written)

    def number(self, key: str, default: float) -> float:
        """Returns a finite number. Raises `UsageError`."""
        written = self.values.get(key)
        try:
            value = default if written is None else float(written)
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            raise UsageError(f"{self.spec}: expected {key} to be a number, got {written}")
        return value

    @property
    def splits(self) -> frozenset[str]:
        """Returns the requested splits by their standard names; empty means all."""
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
    """Normalizes spellings to ``train``, ``val`` or ``test``; lower-cases other names."""
    name = name.strip().lower()
    return _SPLIT_NAMES.get(name, name)


def checked_split(value: Any, where: str) -> str:
    """Returns the name of a split. Raises `UsageError` if it is not a string."""
    if not isinstance(value, str):
        raise UsageError(f'{where}: expected "split" to be a string, got {json.dumps(value)}')
    return normalize_split(value)


def split_records(content: Any) -> Any:
    """Flattens ``{"train": [...], "test": [...]}`` to records with their split; returns other content as is."""
    if not isinstance(content, dict) or not {normalize_split(key) for key in content} <= {"train", "val", "test"}:
        return content
    if not all(isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in content.values()):
        return content
    return [{"split": split, **record} for split, part in content.items() for record in part]


def split_from_name(name: str) -> str:
    """Infers the split from a file name (``captions_val2017.json``, ``train-00000.tar``); "" if there is none."""
    found = re.search(r"(?<![a-z])(train(?:ing)?|val(?:id|idation)?|dev|test)(?![a-z])", name.lower())
    return normalize_split(found[1]) if found else ""


def choose_split(items: list[Item], options: Options) -> list[Item]:
    """Returns the items of the requested splits. Raises `UsageError` for a split that no item has."""
    if not options.splits:
        return items
    check_splits({item.split for item in items}, options)
    return [item for item in items if item.split in options.splits]


def check_splits(found: set[str], options: Options) -> None:
    """Raises `UsageError` if a requested split is not in ``found``."""
    found = found - {""}
    if options.splits and not found:
        raise UsageError(f"{options.spec}: these files have no splits; remove split={options.text('split')}")
    for split in sorted(options.splits - found):
        raise UsageError(f"{options.spec}: the split '{split}' contains no items{nearest(split, found)}")


def choose_part(items: Sequence[Item], options: Options) -> Sequence[Item]:
    """Applies ``part=i/n`` (or ``1,2/3``): returns the i-th of n disjoint parts of the list, in the list's order.

    Items are assigned round-robin in the order of a hash of their ids. The parts therefore differ by at most one in
    size, have the same distribution, and are the same on every machine for the same list.
    """
    written = options.text("part")
    if not written:
        return items
    match = re.fullmatch(r"(\d+(?:,\d+)*)/(\d+)", written)
    chosen = {int(part) for part in match[1].split(",")} if match else set()
    parts = int(match[2]) if match else 0
    if not chosen or not all(1 <= part <= parts for part in chosen):
        raise UsageError(
            f"{options.spec}: expected a part such as part=1/2 or part=1,2/3 (counted from 1), got part={written}"
        )

    hashes = (int.from_bytes(hashlib.blake2b(utf8_bytes(item.id)).digest()[:8]) for item in items)
    order = np.argsort(np.fromiter(hashes, np.uint64, len(items)), kind="stable")
    kept = np.sort(order[np.isin(np.arange(len(items)) % parts + 1, list(chosen))])
    return select_items(items, map(int, kept))


def choose_ids(items: Sequence[Item], options: Options, missing: Skipped) -> Sequence[Item]:
    """Applies ``ids=FILE``: returns the items that a list names (`read_id_list`), in the order of the data.

    Matches names like captions (`match_ids`), and adds names without an item to ``missing``.
    """
    if not (written := options.text("ids")):
        return items
    wanted = read_id_list(Path(written).expanduser())
    paths = {item.id: str(item.picture.path) for item in items if isinstance(item.picture, FilePicture)}
    found, _ = match_ids(wanted, KnownIds(options.spec, [item.id for item in items], paths), written)
    for id_ in wanted:
        if id_ not in found:
            missing.add(id_, f"listed in {written}, but not in the data")
    kept = set(found.values())
    return select_items(items, [place for place, item in enumerate(items) if item.id in kept])


ID_LISTS = ("imgids", "image_ids", "img_ids", "ids")  # CapEnrich's first


def read_id_list(path: Path) -> list[str]:
    """Reads a list of unique ids: a JSON list, an object with a list under ``imgids`` or ``ids``, or one id per line.

    Raises `UsageError` if the file is none of these.
    """
    if path.suffix.lower() in (".pkl", ".pickle"):
        names = f"{shlex.quote(str(path))} {shlex.quote(str(path.with_suffix('.json')))}"
        raise UsageError(
            f"{path}: pickle files are not supported, because loading one executes its code; if "
            "you trust it, run: python -c 'import json, pickle, sys; json.dump([str(id) for id "
            'in pickle.load(open(sys.argv[1], "rb"))["imgids"]], open(sys.argv[2], "w"))\' '
            f"{names}"
        )
    ids = _ids_in(read_json(path) if plain_suffix(path) == ".json" else read_text(path).split())
    if not ids:
        raise UsageError(f'{path}: not a list of ids; expected a JSON list, {{"imgids": [...]}}, or one id per line')
    return list(dict.fromkeys(ids))


def is_id_list(path: Path) -> bool:
    """Returns whether a JSON file is a list of ids (`read_id_list`) rather than of records."""
    return plain_suffix(path) == ".json" and path.is_file() and bool(_ids_in(read_json(path)))


def _ids_in(content: Any) -> list[str]:
    if isinstance(content, dict):
        content = next((content[key] for key in ID_LISTS if key in content), None)
    if not isinstance(content, list) or any(isinstance(id_, bool) or not isinstance(id_, str | int) for id_ in content):
        return []
    return [str(id_).strip() for id_ in content if str(id_).strip()]
