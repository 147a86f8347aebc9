"""Opens specifications as data sets."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tellapart.data.dataset import Changed, Dataset
from tellapart.data.descriptions import described
from tellapart.data.dropped import counting_dropped
from tellapart.data.equal_ids import check_unique_ids
from tellapart.data.file_names import PICTURE_SUFFIXES
from tellapart.data.file_patterns import natural_key
from tellapart.data.kinds import is_picture
from tellapart.data.options import Options
from tellapart.data.reader import READERS
from tellapart.data.selection import choose_ids, choose_part
from tellapart.data.skipped import Skipped, short_name
from tellapart.data.specification import parse, split_query
from tellapart.errors import UsageError
from tellapart.types import Item

MAX_SHOWN = 3  # maximum number of folders listed in a message


def open_data(spec: str) -> Dataset:
    """Opens the data set that ``spec`` describes, such as ``coco:val.json?limit=100`` (see `tellapart.data`)."""
    specs = expanded([spec])
    return _open(spec) if specs == [spec] else _parts(specs, spec)


def expanded(specs: Sequence[str]) -> list[str]:
    """Replaces each pattern of picture files ('photos/*.jpg') with the matching files, in the order of a folder."""
    found = []
    for spec in specs:
        pattern = str(Path(spec).expanduser()) if any(mark in spec for mark in "*?[") else ""
        files = [] if not pattern or Path(spec).exists() else glob.glob(pattern, recursive=True)  # noqa: PTH207
        files.sort(key=natural_key)
        found += files if any(is_picture(Path(file)) for file in files) else [spec]
    return found


def _open(spec: str, empty_part: bool = False) -> Dataset:
    """Opens one specification. ``empty_part``: whether ``part=`` may select no items."""
    kind, path, options = parse(spec)
    with counting_dropped(spec):
        items, missing = READERS[kind].read(path, options)
    items = choose_part(choose_ids(items, options, missing), options)
    if "limit" in options.values:
        items = items[: options.integer("limit", 0, least=1)]
    if not len(items) and not (empty_part and "part" in options.values):
        raise UsageError(f"{spec}: no {_nothing(kind, options, missing)}")
    if prompt := options.text("describe").strip():
        items = Changed(items, partial(described, prompt=prompt))
    return Dataset(spec, items, missing)


def open_many(specs: Sequence[str]) -> Dataset:
    """Opens several specifications, folders or picture files as one data set, in that order.

    A single specification is opened by `open_data`. If there are several, ids from a folder without a kind are prefixed
    with the path as given, so that two folders can contain the same names, and ``part=`` may select no items in some of
    them. Raises `UsageError` for remaining duplicate ids. A pattern such as 'photos/*.jpg' expands to its files.
    """
    if len(specs) == 1:
        return open_data(specs[0])
    if not specs:
        raise UsageError("no pictures were specified; pass a folder, files, or kind:path")
    return _parts(expanded(specs), " ".join(specs))


def _parts(specs: Sequence[str], typed: str) -> Dataset:
    items: list[Item] = []
    missing = Skipped()
    for spec in specs:
        part, path = _open(spec, empty_part=True), Path(split_query(spec)[0])
        if is_picture(Path(spec).expanduser()):
            items += (replace(item, id=Path(spec).as_posix()) for item in part)
        elif path.expanduser().is_dir():
            items += (replace(item, id=(path / item.id).as_posix()) for item in part)
        else:
            items += part
        missing.extend(part.missing)
    if not items:
        raise UsageError(f"{typed}: these parts contain no items; pass more pictures, or use fewer parts")
    check_unique_ids(items, typed)
    return Dataset(typed, items, missing)


def _nothing(kind: str, options: Options, missing: Skipped) -> str:
    """Returns what a data set has none of, and why."""
    if not missing and kind == "folder":
        return f"pictures in this folder (supported: {' '.join(sorted(PICTURE_SUFFIXES))})"
    if not missing:
        return "items"
    why = f"items; {missing.line(len(missing), what='were skipped', shown=2)}"
    if "images" not in READERS[kind].keys or "images" in options.values:
        return why
    folders = dict.fromkeys(short_name(str(Path(name).parent)) for name, _ in missing if "/" in name)
    looked = f"; searched in {', '.join(list(folders)[:MAX_SHOWN])}" if folders else ""
    return f"{why}{looked}; if the pictures are in another folder, add images=FOLDER"
