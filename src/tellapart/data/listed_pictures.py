"""Locates the pictures in a list: finds their folder and checks which of them exist."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from tellapart.data.equal_ids import check_unique_ids
from tellapart.data.options import Options
from tellapart.data.pictures import ClipFile, FilePicture
from tellapart.data.selection import choose_split
from tellapart.data.skipped import Skipped
from tellapart.types import Item


def finish_items(
    items: list[Item], options: Options, where: str, missing: Skipped | None = None
) -> tuple[list[Item], Skipped]:
    """Finishes a reader's items: checks for duplicate ids, and keeps the requested splits and existing files."""
    check_unique_ids(items, where)
    missing = Skipped() if missing is None else missing
    return existing_items(choose_split(items, options), missing), missing


def existing_items(items: Iterable[Item], missing: Skipped) -> list[Item]:
    """Returns the items whose files exist and are not empty, and adds all other items to ``missing``."""
    return [item for item in items if has_file(item, missing)]


def first_clip(paths: Sequence[Path]) -> ClipFile:
    """Returns the first clip that exists. If there is none, returns the first one, so that messages can name it."""
    return ClipFile(next((path for path in paths if path.is_file()), paths[0]))


def has_file(item: Item, missing: Skipped) -> bool:
    """Returns whether the item's file exists and is not empty; if not, adds it to ``missing``. A picture that is not a
    file counts as existing.
    """
    reason = missing_reason(item.picture.path) if isinstance(item.picture, FilePicture) else None
    if reason:
        missing.add(item.picture.name, reason)
    return not reason


# Suffixes of files that are still being downloaded.
PARTIAL_SUFFIXES = (".part", ".partial", ".crdownload", ".download", ".aria2", ".tmp")


def missing_reason(path: Path) -> str | None:
    """Returns why the file has no picture (absent, empty, partial download), or None if it may have one."""
    try:
        size = path.stat().st_size
    except ValueError:  # NUL or a lone surrogate, which no file name contains
        return "no file name"
    except OSError:
        part = next((suffix for suffix in PARTIAL_SUFFIXES if os.path.exists(f"{path}{suffix}")), None)  # noqa: PTH110 (quick)
        return f"incomplete download: only {path.name}{part} exists" if part else "no such file"
    return None if size else "empty file"


SAMPLED_NAMES = 50  # number of a list's pictures to look up in each candidate folder


def picture_folder(options: Options, *candidates: Path, names: Iterable[str] = ()) -> Path:
    """Returns ``images=FOLDER`` if given, otherwise the first candidate folder that contains one of the pictures.

    If no candidate contains any of them, returns the first existing candidate. If no candidate exists, returns the
    first one, so that messages can name it.

    names: the names of the first pictures.
    """
    if chosen := options.text("images"):
        return Path(chosen).expanduser()
    folders = [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]
    some = list(islice(names, SAMPLED_NAMES))
    holding = (folder for folder in folders if any((folder / name).is_file() for name in some))
    return next(holding, next(iter(folders), candidates[0]))
