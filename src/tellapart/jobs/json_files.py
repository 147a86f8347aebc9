"""Reads and writes the JSON objects in a job's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tellapart.jobs.storage import Folder
from tellapart.utils.strict_json import parse_json


def read_object(folder: Folder, name: str, types: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the object in a file.

    Returns None if the file is missing, or if a key is missing or its value has the wrong type.
    """
    try:
        value = parse_json((folder.read(name) or b"").decode())
    except ValueError:
        return None
    whole = isinstance(value, dict) and all(key in value and isinstance(value[key], types[key]) for key in types)
    return value if whole else None


def write_object(folder: Folder, name: str, value: Mapping[str, Any]) -> None:
    """Writes an object to a file, atomically."""
    folder.write(name, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
