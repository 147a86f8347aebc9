"""``jsonl:FILE``: one picture a line, as JSON.

``{"image": "photos/1.jpg", "captions": ["a dog", "a black dog"], "id": "1", "split": "train"}``: ``image`` is
relative to the file (or to ``images=FOLDER``); ``captions`` is a list, or ``caption`` one text, or neither; without
``id`` the path as written is the id. Other fields are the user's own and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.data.base import Options, Skipped, clean_captions
from tellapart.data.base import split_name as normal
from tellapart.data.lines import Lines, LineSource
from tellapart.data.rows import stream
from tellapart.errors import UsageError, nearest
from tellapart.images.clips import picture_file
from tellapart.types import Item
from tellapart.utils.json_text import parse_json


def read(path: Path, options: Options) -> tuple[Sequence[Item], Skipped]:
    """Items of the lines of ``path``. A line that is not as described is a `UsageError` with its number."""
    folder = Path(options.text("images")).expanduser() if options.text("images") else path.parent
    return stream(JsonLines(path, folder), options, merge=False)


class JsonLines(LineSource):
    """A JSON object a line; blank lines are passed over."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path)
        self._folder = folder

    def records(self, lines: Lines) -> Iterator[str | None]:
        """The lines."""
        return (line if line.strip() else None for line in lines)

    def item(self, record: str, number: int, where: str) -> Item:
        """See `LineSource`."""
        return _item(record, where, self._folder)


def _item(line: str, where: str, folder: Path) -> Item:
    try:
        entry = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from None
    if not isinstance(entry, dict):
        raise UsageError(f'{where}: a JSON object such as {{"image": "a.jpg", "captions": ["a dog"]}} was expected')
    image = entry.get("image")
    if not isinstance(image, str) or not image:
        hint = nearest("image", entry) if entry else ""
        raise UsageError(f'{where}: no "image" with the picture\'s path{hint}')
    id_ = entry.get("id", image)
    if not isinstance(id_, str | int) or isinstance(id_, bool) or id_ == "":
        raise UsageError(f'{where}: "id" must be a text or a whole number, not {json.dumps(id_)}')
    split = entry.get("split") or ""
    if not isinstance(split, str):
        raise UsageError(f'{where}: "split" must be a text, not {json.dumps(split)}')
    return Item(str(id_), picture_file(folder / image), _captions(entry, where), normal(split))


def _captions(entry: dict[str, Any], where: str) -> tuple[str, ...]:
    if "captions" in entry and "caption" in entry:
        raise UsageError(f'{where}: both "captions" and "caption"; keep one of them')
    captions = entry.get("captions", entry.get("caption", []))
    if isinstance(captions, str):
        captions = [captions]
    if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
        raise UsageError(f'{where}: "captions" must be a list of texts')
    return clean_captions(captions)
