"""Infers the kind of data at a path from its name and content."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

from tellapart.data.file_names import READABLE_SUFFIXES, UNSUPPORTED_SUFFIXES
from tellapart.data.reader import READERS, Reader, all_readers, builtin_readers
from tellapart.data.text_files import plain_suffix, read_json, refuse_unread
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
    if suffix and (is_file or any(mark in body for mark in "*{[")):
        if found := _first(all_readers(), lambda reader: suffix in reader.suffixes):
            return found
        if suffix == ".json" and is_file:
            content = read_json(path)
            if found := _first(all_readers(), lambda reader: bool(reader.json_layout and reader.json_layout(content))):
                return found
            raise UsageError(f"{spec}: the layout of this JSON file is ambiguous; use coco:{spec} or karpathy:{spec}")
    if is_file:
        known = " ".join(suffix for reader in all_readers() for suffix in reader.suffixes)
        raise UsageError(f"{spec}: expected a picture, a folder of pictures, or one of {known}")
    if len(kind) > 1 and "/" not in kind:
        raise UsageError(f"{spec}: unknown kind of data '{kind}'{nearest(kind, READERS)}")
    similar = ""
    with contextlib.suppress(OSError, ValueError):
        names = [file.name for file in path.parent.iterdir() if not file.name.startswith(".")]
        similar = "".join(
            f"; did you mean '{path.parent / name}'?" for name in difflib.get_close_matches(path.name, names, n=1)
        )
    kinds = ", ".join(sorted(READERS))
    raise UsageError(f"{spec}: no such file or folder{similar} (or use kind:path; kinds: {kinds})")


def _first(readers: Iterable[Reader], fits: Callable[[Reader], bool]) -> str:
    """Returns the name of the first reader that fits, or "" if none does."""
    return next((reader.name for reader in readers if fits(reader)), "")


def _folder_kind(folder: Path) -> str:
    """Infers a folder's kind from a marker file, from pictures (``folder``), or from suffixes, in this order."""

    def has_marker(reader: Reader) -> bool:
        return any((folder / name).is_file() for name in reader.folder_markers)

    if found := _first(builtin_readers(), has_marker):
        return found
    try:
        names = {file.name for file in folder.iterdir()}
    except OSError:  # the reader reports the error
        return "folder"
    suffixes = {Path(name).suffix.lower() for name in names}
    stems = {Path(name).stem for name in names if name.endswith(".parquet")}
    if suffixes & READABLE_SUFFIXES or stems & names:  # img2dataset: 00000.parquet describes 00000/
        return "folder"
    if {f"{stem}.tar" for stem in stems} & names:  # or in 00000.tar
        return "webdataset"
    return _first(all_readers(), lambda each: has_marker(each) or bool(suffixes & {*each.folder_suffixes})) or "folder"


def is_picture(path: Path) -> bool:
    """Returns whether a path is a file that is named like a picture or clip."""
    return path.suffix.lower() in READABLE_SUFFIXES | UNSUPPORTED_SUFFIXES and path.is_file()
