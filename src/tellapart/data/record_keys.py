"""The keys under which common file formats store pictures, ids and captions. Case does not matter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

PICTURE_KEYS = (
    *("image", "picture", "photo", "img", "jpg", "jpeg", "png", "webp", "video", "clip", "gif"),
    *("image_path", "img_path", "video_path", "filepath", "file_path", "path", "file_name", "filename", "file"),
    *("image_name", "image_file", "image_url", "img_url", "url", "images", "videos", "captioning", "sourcefile"),
)
ID_KEYS = (
    *("image_id", "img_id", "imgid", "video_id", "custom_id", "id", "cocoid", "question_id", "doc_id"),
    *("key", "__key__", "uid", "index", "idx"),
)
CAPTION_KEYS = (
    *("captions", "caption", "references", "sentences", "sentence", "descriptions", "description"),
    *("texts", "text", "txt", "comment", "title", "alt_text", "raw", "conversations", "messages"),
    *("caption_str", "paragraph", "vlm_caption", "long_caption", "extra_caption", "short_caption"),
    *("alttextaccessibility", "caption-abstract", "imagedescription"),  # metadata fields, as exiftool names them
)
# A model's output takes precedence over fields that can be the prompt or a human caption.
GENERATED_KEYS = (
    *("prediction", "predictions", "pred", "predict", "response", "responses", "generated_text", "generated_caption"),
    *("generation", "hypothesis", "output", "outputs", "filtered_resps", "resps", "caption", "captions", "answer"),
    *(*CAPTION_KEYS[2:], "result", "annotations"),
)
# Human captions take precedence over a model's output.
REFERENCE_KEYS = (
    *("references", "reference", "refs", "ground_truth", "ground_truths", "gt", "gts", "target", "targets"),
    *("answers", "captions", "caption", "answer", *CAPTION_KEYS[3:], "output", "annotations", "label", "labels"),
)
# Captions of a data set. Unlike REFERENCE_KEYS, these exclude "label" and "labels", which often hold a class.
DATA_KEYS = (*CAPTION_KEYS, "reference", "refs", "ground_truth", "ground_truths", "gt", "gts", "answers", "answer")
MAY_LACK = "(none)"  # in a list of caption keys, allows records without captions
EXIFTOOL_KEY = "SourceFile"
VIZWIZ_FLAGS = ("is_rejected", "is_precanned")
MAX_CACHED = 64  # maximum number of keys of a record; an object of captions by id can have millions
_NUMBERED_STEMS = ("caption", "reference", "ref", "sentence", "description", "answer", "text", "raw", "comment")


def matching_keys(names: Iterable[str], keys: Collection[str]) -> list[str]:
    """Returns the record's keys that match ``names``, in the order of ``names``, ignoring case.

    Keys that differ only in case are in the order of the record.
    """
    match = _matching if len(keys) <= MAX_CACHED else _matching.__wrapped__
    return list(match(tuple(names), tuple(keys)))


@lru_cache(maxsize=1024)  # the records of a file tend to have the same keys
def _matching(names: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(str(key).strip().lower(), []).append(key)
    return tuple(key for name in names for key in by_name.get(name, ()))


def find_key(names: Iterable[str], keys: Collection[str]) -> str:
    """Returns the record's key that matches the earliest of ``names``, ignoring case, or "" if there is no match."""
    return next(iter(matching_keys(names, keys)), "")


def exiftool_names(keys: list[str]) -> list[str]:
    """Strips the group that exiftool's ``-G`` adds to keys (``XMP:Description``). Leaves other keys unchanged."""
    return [str(key).rpartition(":")[2] for key in keys] if EXIFTOOL_KEY in keys else keys


def picture_key(keys: Collection[str]) -> str:
    """Returns the picture's key: one of `PICTURE_KEYS`, or the only key that ends in ``file_name``; "" if none."""
    ends = [key for key in keys if str(key).strip().lower().endswith("file_name")]
    return find_key(PICTURE_KEYS, keys) or (ends[0] if len(ends) == 1 else "")


def text_keys(names: Iterable[str], keys: Collection[str]) -> list[str]:
    """Returns the key that matches the earliest of ``names`` or, if none does, all numbered keys (``caption_0``, …)."""
    if found := find_key(names, keys):
        return [found]
    for stem in _NUMBERED_STEMS:
        matches = ((re.fullmatch(rf"\s*{stem}[ _-]?(\d+)\s*", str(key), re.IGNORECASE), key) for key in keys)
        if numbered := {int(match[1]): key for match, key in matches if match}:
            return [numbered[number] for number in sorted(numbered)]
    return []


def find_value(names: Iterable[str], record: Mapping[str, Any]) -> Any:
    """Returns the first non-empty value under one of the names, or None."""
    values = (record[key] for key in matching_keys(names, record))
    return next((value for value in values if value not in (None, "", [], {})), None)
