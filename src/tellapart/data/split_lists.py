"""Reads the splits of a data set from lists with one name per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tellapart.data.text_files import read_text
from tellapart.errors import UsageError


def read_split_lists(
    folders: Iterable[Path], names: Mapping[str, Iterable[str]], key: Callable[[str], str]
) -> dict[str, str]:
    """Maps names to splits, using lists with one name per line. ``names``: possible file names of each split's list.

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
