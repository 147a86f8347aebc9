"""Finds the picture and the id of a record.

Shared by the readers of data sets, of caption files and of prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tellapart.data.encoded_pictures import is_base64
from tellapart.data.file_names import is_file_name
from tellapart.data.record_keys import ID_KEYS, PICTURE_KEYS, find_value, picture_key
from tellapart.data.row_errors import RowError
from tellapart.errors import UsageError

_UPLOADED = re.compile(r"^/data/(?:upload/\d+/[0-9a-f]{8}-|local-files/\?d=)")  # Label Studio's prefix of file names


def sole(value: Any, where: str) -> Any:
    """Unwraps a list of one value. Returns other values unchanged. Raises `RowError` for longer lists."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) != 1:
        raise RowError(where, f"expected one picture per row, got {len(value)}")
    return sole(value[0], where)


def picture_value(record: Mapping[str, Any]) -> Any:
    """Returns a record's picture as given: a path, a URL, base64, a mapping or a list, or None if it has no picture.

    In Karpathy's JSON of COCO, ``filepath`` (``val2014``) is the folder of ``filename`` (``COCO_val2014_….jpg``).
    """
    value = find_value(PICTURE_KEYS, record) or record.get(picture_key(record))
    folder, name = find_value(("filepath",), record), find_value(("filename",), record)
    if value == folder and isinstance(name, str) and isinstance(folder, str) and not is_file_name(folder):
        value = f"{folder.rstrip('/')}/{name}"
    return value


def picture_path(record: Mapping[str, Any]) -> str:
    """Returns the path or URL of a record's picture as written, or "" if it has no picture or several."""
    value = picture_value(record)
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, Mapping):  # Hugging Face's {"bytes", "path"}, a chat's {"type": "image", "image": path}
        value = find_value(("path", *PICTURE_KEYS), value)
    return _UPLOADED.sub("", value) if isinstance(value, str) and not is_base64(value) else ""


def record_id(record: Mapping[str, Any], where: str) -> str:
    """Returns a record's id, or "" if it has no id. Raises `UsageError` if it is neither a string nor an integer."""
    value = find_value(ID_KEYS, record)
    if value is None and isinstance(number := find_value(PICTURE_KEYS, record), int) and not isinstance(number, bool):
        value = number  # {"image": 391895}
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not (isinstance(value, str | int) or (isinstance(value, float) and value % 1 == 0)):
        raise UsageError(
            f"{where}: expected the id to be a string or an integer, got {json.dumps(value, default=str)[:40]}"
        )
    return id_text(value)


def checked_id(value: Any, where: str) -> str:
    """Returns an id as text. Raises `UsageError` if it is neither a non-empty string nor an integer."""
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise UsageError(f'{where}: expected "id" to be a string or an integer, got {json.dumps(value)}')
    return str(value)


def id_text(value: Any) -> str:
    """Returns an id as text. Drops the ``.0`` that pandas adds to integer ids if some are missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
