"""Infers the kind of data at a path from its name and content."""

from __future__ import annotations

import difflib
from pathlib import Path

from tellapart.data.decode import PICTURE_SUFFIXES, UNSUPPORTED_SUFFIXES
from tellapart.data.reader import READERS, Reader, known_suffixes, recognize
from tellapart.data.text_files import plain_suffix, read_json, refuse_unread
from tellapart.data.video import CLIP_SUFFIXES
from tellapart.errors import UsageError, nearest


def bare_kind(spec: str, body: str, kind: str) -> str:
    """Infers the kind of a bare path. Raises `UsageError` if the path does not exist or its kind is ambiguous."""
    path = Path(body).expanduser()
    if path.is_dir():
        return _folder_kind(path)
    if is_picture(path):
        return "folder"
    suffix, is_file = plain_suffix(path), path.is_file()
    if is_file:
        refuse_unread(path)
    if is_file or any(mark in body for mark in "*{["):
        if suffix and (by_suffix := recognize(lambda reader: suffix in reader.suffixes)):
            return by_suffix
        if is_file and suffix == ".json":
            return _json_kind(path, spec)
        if is_file:
            raise UsageError(
                f"{spec}: expected a picture, a folder of pictures, or one of {' '.join(known_suffixes())}"
            )
    if len(kind) > 1 and "/" not in kind:
        raise UsageError(f"{spec}: unknown kind of data '{kind}'{nearest(kind, READERS)}")
    kinds = ", ".join(sorted(READERS))
    raise UsageError(f"{spec}: no such file or folder{_similar_path(path)} (or use kind:path; kinds: {kinds})")


def _similar_path(path: Path) -> str:
    """Returns ``; did you mean 'photos'?`` for a similar name in the same folder, or "" if there is none."""
    try:
        names = [file.name for file in path.parent.iterdir() if not file.name.startswith(".")]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / close[0]}'?" if close else ""


def _json_kind(path: Path, spec: str) -> str:
    """Infers the kind of a JSON file from its content."""
    content = read_json(path)
    if found := recognize(lambda reader: reader.json_layout is not None and reader.json_layout(content)):
        return found
    raise UsageError(f"{spec}: the layout of this JSON file is ambiguous; use coco:{spec} or karpathy:{spec}")


def _folder_kind(folder: Path) -> str:
    """Infers a folder's kind from a marker file, from pictures (``folder``), or from suffixes, in this order."""

    def has_marker(reader: Reader) -> bool:
        return any((folder / name).is_file() for name in reader.folder_markers)

    if found := recognize(has_marker, plugins=False):
        return found
    try:
        names = {file.name for file in folder.iterdir()}
    except OSError:  # the reader reports the error
        return "folder"
    suffixes = {Path(name).suffix.lower() for name in names}
    stems = {Path(name).stem for name in names if name.endswith(".parquet")}
    if suffixes & (PICTURE_SUFFIXES | CLIP_SUFFIXES) or stems & names:  # img2dataset: 00000.parquet describes 00000/
        return "folder"
    if {f"{stem}.tar" for stem in stems} & names:  # or in 00000.tar
        return "webdataset"
    return recognize(lambda reader: has_marker(reader) or bool(suffixes & {*reader.folder_suffixes})) or "folder"


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES | CLIP_SUFFIXES | UNSUPPORTED_SUFFIXES and path.is_file()
