"""Finds and checks the paths of files that are written next to pictures, for any suffix."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.listed_names import few

NAMED_FILES = 10  # maximum number of files in a message


def files_beside(items: Iterable[Item], suffix: str, instead: str = "use -o captions.jsonl") -> dict[str, Path]:
    """Returns the path of each picture, with its suffix replaced, by picture id.

    instead: what to do if files cannot be written beside the pictures.

    Raises `UsageError` if a picture is not a file, or if pictures would share a file; the message lists these pictures.
    """
    pictures: dict[Path, list[str]] = {}
    found = {}
    for item in items:
        if not isinstance(item.picture, FilePicture):
            raise UsageError(
                f"{item.picture.name} is not a file, so a {suffix} file cannot be written beside it; {instead}"
            )
        target = item.picture.path.with_suffix(suffix)
        pictures.setdefault(target, []).append(item.picture.name)
        found[item.id] = target
    clashes = [f"{' and '.join(names)} would both use {target}" for target, names in pictures.items() if len(names) > 1]
    if clashes:
        raise UsageError(f"{few(clashes, NAMED_FILES, '; ')}; rename one of each pair")
    return found


def check_beside(items: Sequence[Item], suffix: str, instead: str = "use -o captions.jsonl") -> dict[str, Path]:
    """Like `files_beside`, but also raises a `UsageError` that lists all folders and files that cannot be written."""
    targets = files_beside(items, suffix, instead)
    wrong = [str(folder) for folder in dict.fromkeys(path.parent for path in targets.values())
             if not os.access(folder, os.W_OK)]  # fmt: skip
    wrong += [f"{path} (a folder)" for path in targets.values() if path.is_dir()]
    if wrong:
        raise UsageError(
            f"cannot write {suffix} files in {few(wrong, NAMED_FILES)}; make the folder writable, or {instead}"
        )
    return targets


def common_folder(items: Sequence[Item]) -> Path:
    """Returns the common parent folder of all pictures. Raises `UsageError` if any picture is not a file."""
    paths = [item.picture.path.absolute() for item in items if isinstance(item.picture, FilePicture)]
    if len(paths) < len(items) or not paths:
        name = next((item.picture.name for item in items if not isinstance(item.picture, FilePicture)), "nothing")
        raise UsageError(f"{name} is not a file, so no file can be written beside it; use -o captions.jsonl")
    return Path(os.path.commonpath([path.parent for path in paths]))
