"""Pictures that a list names: the folder that has them, and which of them are there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from tellapart.data.dataset import Skipped
from tellapart.data.pictures import FilePicture
from tellapart.data.selection import Options, choose_split
from tellapart.errors import UsageError
from tellapart.types import Item


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
