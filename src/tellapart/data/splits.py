"""Names of splits: spellings, and where files and records give them."""

from __future__ import annotations

import json
import re
from typing import Any

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
