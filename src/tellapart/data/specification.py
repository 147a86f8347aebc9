"""Data sets by specification; `tellapart.data` has the grammar."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from tellapart.data.base import Options, check_unique_ids, choose_part, plain_suffix, read_json, refuse_unread
from tellapart.data.dataset import Dataset, Skipped
from tellapart.data.descriptions import Described
from tellapart.data.images.clips import CLIP_SUFFIXES
from tellapart.data.images.pictures import SUFFIXES, UNSUPPORTED_SUFFIXES
from tellapart.data.registry import COMMON_KEYS, READERS, Reader, known_suffixes, recognize
from tellapart.errors import UsageError, nearest
from tellapart.types import Item


def open_data(spec: str) -> Dataset:
    """The data set of a specification (the module's docstring has the grammar). Raises `UsageError`."""
    found = expanded([spec])
    return _open(spec) if found == [spec] else _parts(found, spec)


def expanded(specs: Sequence[str]) -> list[str]:
    """The specifications with a pattern of picture files ('photos/*.jpg') as the files that it matches, in order."""
    return [each for spec in specs for each in (_pictures_like(spec) or [spec])]


def _pictures_like(spec: str) -> list[str]:
    if not any(mark in spec for mark in "*?[") or Path(spec).exists():
        return []
    found = sorted(glob.glob(str(Path(spec).expanduser()), recursive=True))  # noqa: PTH207 (Path.glob takes no "/…")
    return found if any(is_picture(Path(each)) for each in found) else []


def _open(spec: str, empty_part: bool = False) -> Dataset:
    """``empty_part``: a part may have no items, where others stand beside it."""
    kind, path, options = parse(spec)
    items, missing = READERS[kind].read(path, options)
    items = choose_part(items, options)
    if "limit" in options.values:
        items = items[: options.integer("limit", 0, least=1)]
    if not len(items) and not (empty_part and "part" in options.values):
        raise UsageError(_nothing(spec, kind, options, missing))
    if prompt := options.text("describe").strip():
        items = Described(items, prompt)
    return Dataset(spec, items, missing)


def open_many(specs: Sequence[str]) -> Dataset:
    """Several specifications, folders or picture files as one data set, in that order.

    One specification is `open_data`. Of several, the items of a folder without a kind get the path as it was typed
    before their id, so that two folders may hold the same names; ids that are double all the same are a `UsageError`.
    One of several parts may be empty. A pattern such as 'photos/*.jpg' stands for its files.
    """
    if len(specs) == 1:
        return open_data(specs[0])
    if not specs:
        raise UsageError("no pictures were named; type a folder, files, or kind:path")
    return _parts(expanded(specs), " ".join(specs))


def _parts(specs: Sequence[str], typed: str) -> Dataset:
    items: list[Item] = []
    missing = Skipped()
    for spec in specs:
        part = _open(spec, empty_part=True)
        bare = Path(spec).expanduser()
        folder = Path(spec if bare.exists() else _split_query(spec)[0])
        for item in part:
            if folder.expanduser().is_dir():
                item = replace(item, id=(folder / item.id).as_posix())
            items.append(replace(item, id=Path(spec).as_posix()) if is_picture(bare) else item)
        missing.extend(part.missing)
    if not items:
        raise UsageError(f"{typed}: no items in these parts; name more pictures, or fewer parts")
    check_unique_ids(items, typed)
    return Dataset(typed, items, missing)


def parse(spec: str) -> tuple[str, Path, Options]:
    """A specification as (kind, path, options), with kind and keys checked. Raises `UsageError`."""
    if not spec:
        raise UsageError(f"an empty specification; type kind:path, where kind is one of {', '.join(sorted(READERS))}")
    body, query = (spec, "") if Path(spec).exists() else _split_query(spec)
    kind, colon, rest = body.partition(":")
    if not colon or Path(body).exists() or kind not in READERS:
        kind, rest = _bare_kind(spec, body, kind if colon else ""), body
    options = Options(spec, _values(spec, query))
    reader = READERS.find(kind)
    known = (*COMMON_KEYS, *reader.keys)
    for key in options.values:
        if key not in known:
            raise UsageError(f"{spec}: '{kind}:' has no key '{key}'{nearest(key, known)}")
    if not rest and reader.needs_path:
        raise UsageError(f"{spec}: no path after '{kind}:'")
    return kind, Path(rest).expanduser(), options


def _split_query(spec: str) -> tuple[str, str]:
    body, mark, query = spec.rpartition("?")
    return (body, query) if mark else (spec, "")


def _values(spec: str, query: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{spec}: '{pair}' is not key=value")
        if key in values:
            raise UsageError(f"{spec}: the key '{key}' stands there twice")
        values[key] = unquote(value)
    return values


def _bare_kind(spec: str, body: str, kind: str) -> str:
    """The kind of a path without one; a `UsageError` where there is no such path or its kind is unclear."""
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
                f"{spec}: neither a picture, a folder of pictures, nor one of {' '.join(known_suffixes())}"
            )
    if len(kind) > 1 and "/" not in kind:
        raise UsageError(f"{spec}: unknown kind of data '{kind}'{nearest(kind, READERS)}")
    kinds = ", ".join(sorted(READERS))
    raise UsageError(f"{spec}: no such file or folder{_similar_path(path)} (or type kind:path, kinds: {kinds})")


def _similar_path(path: Path) -> str:
    """``; did you mean 'photos'?``, of the names beside it; empty without one."""
    try:
        names = [file.name for file in path.parent.iterdir() if not file.name.startswith(".")]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / close[0]}'?" if close else ""


def _json_kind(path: Path, spec: str) -> str:
    """The kind of a JSON file, by its content."""
    content = read_json(path)
    if found := recognize(lambda reader: reader.json_layout is not None and reader.json_layout(content)):
        return found
    raise UsageError(f"{spec}: which layout is this JSON file? type coco:{spec} or karpathy:{spec}")


def _folder_kind(folder: Path) -> str:
    """By a marker file; else a folder that holds a picture is one of pictures; else by the suffixes in it."""

    def has_marker(reader: Reader) -> bool:
        return any((folder / name).is_file() for name in reader.folder_markers)

    if found := recognize(has_marker, plugins=False):
        return found
    try:
        names = {file.name for file in folder.iterdir()}
    except OSError:  # its reader says why
        return "folder"
    suffixes = {Path(name).suffix.lower() for name in names}
    stems = {Path(name).stem for name in names if name.endswith(".parquet")}
    if suffixes & (SUFFIXES | CLIP_SUFFIXES) or stems & names:  # img2dataset: 00000.parquet says what is in 00000/
        return "folder"
    if {f"{stem}.tar" for stem in stems} & names:  # or in 00000.tar
        return "webdataset"
    return recognize(lambda reader: has_marker(reader) or bool(suffixes & {*reader.folder_suffixes})) or "folder"


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES | CLIP_SUFFIXES | UNSUPPORTED_SUFFIXES and path.is_file()


def _nothing(spec: str, kind: str, options: Options, missing: Skipped) -> str:
    left_out = missing.line(len(missing), what="were left out", shown=2)
    if left_out and "images" in READERS[kind].keys and "images" not in options.values:
        return f"{spec}: no items; {left_out}; if the pictures are elsewhere, type images=FOLDER"
    if left_out:
        return f"{spec}: no items; {left_out}"
    if kind == "folder":
        return f"{spec}: no pictures in this folder ({' '.join(sorted(SUFFIXES))} are looked for)"
    return f"{spec}: no items"
