"""Reads JSON files with a list of "images", as COCO's, Karpathy's and Concadia's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.data.text_files import read_json
from tellapart.errors import UsageError


def read_images(path: Path, kind: str, file_key: str, *keys: str) -> dict[str, Any]:
    """Reads a JSON object with a list of "images", each an object with a file name under ``file_key``, and ``keys``.

    Raises a `UsageError` that names the expected ``kind`` of file, or the first image that lacks a key.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise UsageError(f'{path}: not {kind}; expected an object with "images"')
    for number, image in enumerate(content["images"]):
        named = isinstance(image, dict) and isinstance(image.get(file_key), str)
        if not named or not all(key in image for key in keys):
            lacking = " or no ".join(f'"{key}"' for key in (*keys, file_key))
            raise UsageError(f"{path}: images[{number}] has no {lacking}")
    return content
