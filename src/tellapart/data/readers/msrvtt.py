"""``msrvtt:FILE``: MSR-VTT (Xu et al. 2016), clips with twenty sentences each.

``train_val_videodatainfo.json``: ``{"videos": [{"video_id": "video0", "split": "train"}], "sentences": [{"video_id":
"video0", "caption": "…"}]}``. Also reads a list of ``{"video_id": …, "caption": …}``, as JSON or one per line;
``caption`` can be a list, or be named ``captions`` or ``sentence``. For a folder, reads its
``train_val_videodatainfo.json`` and ``test_videodatainfo.json``. Clips (``video0.mp4``, also avi, webm, mkv) are in
``images=FOLDER``, by default in ``TrainValVideo/``, ``TestVideo/``, ``videos/`` or ``videos/all/`` next to the file, or
in the file's folder. The id is the ``video_id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tellapart.data.caption_values import clean_captions
from tellapart.data.dataset import ReadItems
from tellapart.data.listed_pictures import finish_items, first_clip
from tellapart.data.options import Options
from tellapart.data.reader import IMAGES, READERS, Reader
from tellapart.data.splits import normalize_split, split_from_name
from tellapart.data.text_files import is_json_lines, json_lines, parsed_json, read_text
from tellapart.errors import UsageError
from tellapart.types import Item

FILES = ("train_val_videodatainfo.json", "test_videodatainfo.json")  # both are read if a folder is given
CLIP_FOLDERS = ("TrainValVideo", "TestVideo", "videos", "videos/all", "video", "data/MSRVTT/videos/all", "")
TRIED_SUFFIXES = (".mp4", ".avi", ".webm", ".mkv")
TEXT_KEYS = ("caption", "captions", "sentence")


def read(path: Path, options: Options) -> ReadItems:
    """Returns items, one file at a time, in the order of ``videos`` or, without that key, in the order in which the
    sentences first mention them.
    """
    files = [path / name for name in FILES if (path / name).is_file()] if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path}: no {' or '.join(FILES)} in this folder; specify the file: msrvtt:{path}/FILE.json")
    return finish_items([item for file in files for item in _items(file, options)], options, str(path))


def _items(path: Path, options: Options) -> Iterator[Item]:
    content = _content(path)
    official = isinstance(content, dict)
    captions: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    for _, entry in _entries(content.get("videos", []) if official else [], f"{path}: videos"):
        captions[entry["video_id"]] = []
        splits[entry["video_id"]] = normalize_split(str(entry.get("split") or ""))
    sentences = (content.get("sentences"), f"{path}: sentences") if official else (content, str(path))
    for where, entry in _entries(*sentences):
        found = next((entry[key] for key in TEXT_KEYS if key in entry), None)
        texts = [found] if isinstance(found, str) else found
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(
                f"{where}: expected a text under one of {', '.join(TEXT_KEYS)}; available keys: {', '.join(entry)}"
            )
        captions.setdefault(entry["video_id"], []).extend(texts)
        split = normalize_split(str(entry.get("split") or "")) or split_from_name(path.name)
        splits.setdefault(entry["video_id"], split)
    chosen = options.text("images")
    folders = [Path(chosen).expanduser()] if chosen else [path.parent / name for name in CLIP_FOLDERS]
    for id_, texts in captions.items():
        paths = [folder / (id_ + suffix) for folder in folders for suffix in TRIED_SUFFIXES]
        yield Item(id_, first_clip(paths), clean_captions(texts, f"{path}: {id_}"), splits[id_])


def _content(path: Path) -> Any:
    """Returns the official file's object, or a list of records."""
    text = read_text(path)
    if is_json_lines(text):
        return [value for _, value in json_lines(path, text)]
    content = parsed_json(text, str(path))
    return content if isinstance(content, list) or (isinstance(content, dict) and "sentences" in content) else [content]


def _entries(entries: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each record with its location. Raises `UsageError` if it is no record of a clip."""
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        if not isinstance(entry, dict) or not isinstance(entry.get("video_id"), str):
            raise UsageError(f'{where}[{number}]: expected an object with "video_id"; is this MSR-VTT?')
        yield f"{where}[{number}]", entry


READERS.register(
    Reader(
        name="msrvtt",
        factory=read,
        help="MSR-VTT's clips",
        keys=IMAGES,
        layouts=(
            (
                'MSR-VTT: `videodatainfo` JSON, or a list of `{"video_id", "caption"}`',
                "`msrvtt:MSRVTT?split=test`, `msrvtt:train_val_videodatainfo.json?images=TrainValVideo`",
            ),
        ),
        published=True,
    )
)
