"""``jsonl:FILE``: one picture per line, as JSON; or a JSON list of such records.

``{"image": "photos/1.jpg", "captions": ["a dog", "a black dog"], "id": "1", "split": "train"}``: ``image`` is relative
to the file (or to ``images=FOLDER``). Captions are a ``captions`` list, a single ``caption``, or absent; the
default id is the path as written. Other common names for pictures and captions are recognized
(`tellapart.data.record_keys`), such as Hugging Face's ``file_name`` and ``text`` or LLaVA's ``conversations``. Other
fields are ignored. In a JSON list, all records with the same id form one picture with several captions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.encoded_pictures import decode_base64, is_base64
from tellapart.data.equal_ids import merged
from tellapart.data.line_source import Lines, LineSource
from tellapart.data.listed_pictures import finish_items, picture_folder
from tellapart.data.options import Options
from tellapart.data.pictures import BytesPicture, PackedPicture, picture_file, picture_in
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.record_keys import DATA_KEYS, PICTURE_KEYS, find_value, text_keys
from tellapart.data.records import checked_id, picture_path, picture_value, record_id, sole
from tellapart.data.row_errors import RowError
from tellapart.data.row_index import RowPosition
from tellapart.data.skipped import Skipped
from tellapart.data.splits import checked_split, split_records
from tellapart.data.text_files import parsed_json, plain_suffix, read_json
from tellapart.errors import UsageError, nearest
from tellapart.types import Item


def read(path: Path, options: Options) -> ReadItems:
    """Returns one item per line of ``path``. Raises `UsageError` with the number of a malformed line."""
    home = path.parent
    folder = picture_folder(options, home)
    if plain_suffix(path) == ".json":
        if options.text("bytes"):
            raise UsageError(f"{options.spec}: bytes= is for JSON lines, but this file is a JSON list; remove bytes=")
        content = _records(read_json(path))
        if isinstance(content, list) and content and isinstance(content[0], dict) and "subreddit" in content[0]:
            folder = picture_folder(options, home.parent / "images", home / "images", home)
        missing = Skipped()
        return finish_items(_items(content, folder, path, missing), options, str(path), missing)
    return JsonLines(path, folder, _span(options)).items(options, merge=False)


def _span(options: Options) -> tuple[int, int] | None:
    """Parses ``bytes=START-STOP``. Returns None for the whole file. Raises `UsageError`."""
    written = options.text("bytes")
    if not written:
        return None
    found = re.fullmatch(r"(\d{1,18})-(\d{1,18})", written)
    if not found or int(found[1]) > int(found[2]):
        raise UsageError(f"{options.spec}: expected a byte range such as bytes=0-4096, got bytes={written}")
    return int(found[1]), int(found[2])


class JsonLines(LineSource):
    """One JSON object per line. Skips blank lines. ``span``: see `LineSource`."""

    def __init__(self, path: Path, folder: Path, span: tuple[int, int] | None = None) -> None:
        super().__init__(path, span=span)
        self._folder = folder

    def records(self, lines: Lines) -> Iterator[str | None]:
        """Yields the lines."""
        return (line if line.strip() else None for line in lines)

    def item(self, row: str, place: RowPosition) -> Item:
        """See `RowSource`."""
        where = self.where(place)
        return _item(parsed_json(row, where), where, self._folder, partial(self.encoded_picture, place))

    def encoded(self, record: str) -> str:
        """See `LineSource`."""
        return str(_picture(parsed_json(record, self.name), self.name))


def _records(content: Any) -> Any:
    """Returns the list of records in TextCaps' ``{"data": [...]}``, RedCaps' ``{"annotations": [...]}``, or all splits
    of ``{"train": [...]}``. Returns other content unchanged.
    """
    content = split_records(content)
    inner = (content.get("data", content.get("annotations")) if isinstance(content, dict) else None) or content
    return inner if isinstance(inner, list) else content


def _items(content: Any, folder: Path, path: Path, missing: Skipped) -> list[Item]:
    """Returns the items of a JSON list."""
    if not isinstance(content, list):
        raise UsageError(
            f"{path}: expected a JSON list of records; for other layouts, use coco:{path} or karpathy:{path}"
        )
    items: dict[str, list[Item]] = {}
    for number, entry in enumerate(content, start=1):
        try:
            item = _item(entry, f"{path}, entry {number}", folder)
        except RowError as error:
            missing.add(error.where, error.reason)
            continue
        items.setdefault(item.id, []).append(item)
    return [merged(same, str(path)) for same in items.values()]


def _picture(entry: dict[str, Any], where: str) -> Any:
    """Returns the path of a record's picture, or the picture in base64. Raises `RowError` if there are several."""
    value = sole(picture_value(entry), where)
    if isinstance(value, dict):
        value = sole(find_value(("bytes", *PICTURE_KEYS), value), where)
    return value if is_base64(value) else picture_path({"image": value})


def _item(entry: Any, where: str, folder: Path, stored: Callable[[], PackedPicture] | None = None) -> Item:
    """Returns the item of a record. ``stored``: returns the picture if the record contains it (default: in memory)."""
    if not isinstance(entry, dict):
        raise UsageError(f'{where}: expected a JSON object such as {{"image": "a.jpg", "captions": ["a dog"]}}')
    image = _picture(entry, where)
    if "subreddit" in entry and "image_id" in entry:  # the file name that RedCaps' downloader uses
        image = f"{entry['subreddit']}/{entry['image_id']}.jpg"
    if not isinstance(image, str) or not image:
        hint = nearest("image", entry) if entry else ""
        raise UsageError(f'{where}: missing key "image" with the picture\'s path{hint}')
    split = checked_split(entry.get("split") or entry.get("set_name") or "", where)
    if "captions" in entry and "caption" in entry:
        raise UsageError(f'{where}: both "captions" and "caption" are set; remove one of them')
    keys = [key for key in ("captions", "caption") if key in entry] or text_keys(DATA_KEYS, entry)
    captions = clean_captions([entry[key] for key in keys], where, entry)
    if is_base64(image):
        packed = stored() if stored else BytesPicture(decode_base64(image), where)
        id_ = entry.get("id", record_id(entry, where) or Path(packed.name).name)
        return Item(checked_id(id_, where), packed, captions, split)
    picture = picture_in(folder, image)
    if "set_name" in entry and not picture.path.exists():  # TextCaps: train/1.jpg is in train_images/
        moved = (file for at in ("train_images", ".") if (file := folder / at / picture.path.name).exists())
        picture = picture_file(next(moved, picture.path))
    return Item(checked_id(entry.get("id", image), where), picture, captions, split)


def _is_list_of_records(content: Any) -> bool:
    content = _records(content)
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and bool(picture_value(first))


READERS.register(
    Reader(
        name="jsonl",
        factory=read,
        help="one JSON object per line with image, captions, id and split, or a JSON list of them",
        keys={**IMAGES, "bytes": "`0-4096`: only the lines that begin within this byte range"},
        layouts=(
            (
                (
                    'JSON lines: `{"image": "1.jpg", "captions": ["a dog"], "id": "1", '
                    '"split": "train"}`, or a JSON list of such records'
                ),
                "`data.jsonl` or `jsonl:data.jsonl`",
            ),
            ("TextCaps", "`TextCaps_0.1_val.json?images=train_images`"),
            (
                "RedCaps: one of its files, and the downloaded pictures",
                "`annotations/abandoned_2017.json?images=images`",
            ),
            ('LLaVA\'s training data: `[{"id", "image", "conversations"}]`', "`llava.json?images=FOLDER`"),
        ),
        suffixes=(".jsonl", ".ndjson"),
        json_layout=_is_list_of_records,
    )
)
