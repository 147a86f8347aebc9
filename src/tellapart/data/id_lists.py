"""Reads lists of ids, which select items of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.data.text_files import plain_suffix, read_json, read_text, refuse_unread
from tellapart.errors import UsageError

ID_LISTS = ("imgids", "image_ids", "img_ids", "ids")  # CapEnrich uses the first one


def read_id_list(path: Path) -> list[str]:
    """Reads a list of unique ids: a JSON list, an object with a list under ``imgids`` or ``ids``, or one id per line.

    Raises `UsageError` if the file has none of these layouts.
    """
    refuse_unread(path)
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
