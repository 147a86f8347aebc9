"""Normalizes the names of splits, and finds the splits that file names, records and lists specify."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tellapart.data.text_files import read_text
from tellapart.errors import UsageError

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
    """Normalizes spellings to ``train``, ``val`` or ``test``. Lower-cases other names."""
    name = name.strip().lower()
    return _SPLIT_NAMES.get(name, name)


def checked_split(value: Any, where: str) -> str:
    """Returns the name of a split. Raises `UsageError` if it is not a string."""
    if not isinstance(value, str):
        raise UsageError(f'{where}: expected "split" to be a string, got {json.dumps(value)}')
    return normalize_split(value)


def split_records(content: Any) -> Any:
    """Flattens ``{"train": [...], "test": [...]}`` to records with their split. Returns other content unchanged."""
    if not isinstance(content, dict) or not {normalize_split(key) for key in content} <= {"train", "val", "test"}:
        return content
    if not all(isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in content.values()):
        return content
    return [{"split": split, **record} for split, part in content.items() for record in part]


def split_from_name(name: str) -> str:
    """Infers the split from a file name (``captions_val2017.json``, ``train-00000.tar``), or "" if there is none."""
    found = re.search(r"(?<![a-z])(train(?:ing)?|val(?:id|idation)?|dev|test)(?![a-z])", name.lower())
    return normalize_split(found[1]) if found else ""


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
