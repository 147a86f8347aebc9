"""Data sets by specification; `tellapart.data` has the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from tellapart.data import (
    coco,
    columns,
    concadia,
    conceptual,
    flickr,
    folder,
    huggingface,
    imagecode,
    instructions,
    jsonl,
    karpathy,
    msrvtt,
    msvd,
    nocaps,
    parquet,
    scenes,
    table,
    tgif,
    webdataset,
)
from tellapart.data.base import Dataset, Options, Reader, Skipped, check_unique_ids, choose_part, read_json
from tellapart.data.records import picture_path
from tellapart.errors import UsageError, nearest
from tellapart.images.clips import CLIP_SUFFIXES
from tellapart.images.pictures import SUFFIXES
from tellapart.types import Item

COMMON_KEYS = ("split", "part", "limit")

# A new layout is a module with a `read`, one line here, and a test.
READERS: dict[str, Reader] = {
    "scenes": Reader(scenes.read, scenes.KEYS, "the embedded world; the path is a domain"),
    "folder": Reader(folder.read, (), "the pictures in a folder and below it"),
    "jsonl": Reader(jsonl.read, ("images",), "a JSON object a line: image, captions, id, split"),
    "instructions": Reader(instructions.read, (), "prompts and answers for a language model, Alpaca's JSON or JSONL"),
    "flickr8k": Reader(flickr.read, ("images",), "the folder with Flickr8k's own files"),
    "coco": Reader(coco.read, ("images",), "COCO captions JSON, or its folder"),
    "karpathy": Reader(karpathy.read, ("images",), "Karpathy's JSON of splits"),
    "conceptual": Reader(conceptual.read, ("images",), "Conceptual Captions: a TSV, and what could be fetched"),
    "nocaps": Reader(nocaps.read, ("images", "domain"), "nocaps, all of it or by domain"),
    "concadia": Reader(concadia.read, ("images", "text"), "Concadia: descriptions, captions, or both"),
    "imagecode": Reader(imagecode.read, ("images", "only"), "ImageCoDe's sets of ten pictures"),
    "msrvtt": Reader(msrvtt.read, ("images",), "MSR-VTT's clips"),
    "tgif": Reader(tgif.read, ("images",), "TGIF's animated GIFs"),
    "msvd": Reader(msvd.read, ("images", "language"), "MSVD's clips"),
    "csv": Reader(table.read, columns.KEYS, "a table with a header; columns are known by name or named"),
    "parquet": Reader(parquet.read, columns.KEYS, "Parquet: pictures, paths or addresses in a column"),
    "hf": Reader(huggingface.read, (*columns.KEYS, "config"), "Hugging Face datasets: a saved folder, or a hub name"),
    "webdataset": Reader(webdataset.read, (), "tar files of samples"),
}

# What a path alone is taken for, by its suffix; and a folder by what it holds.
BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".tar": "webdataset",
}
BY_CONTENT = {".tar": "webdataset", ".parquet": "parquet"}
SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` writes


def open_data(spec: str) -> Dataset:
    """The data set of a specification (the module's docstring has the grammar). Raises `UsageError`."""
    kind, path, options = parse(spec)
    items, missing = READERS[kind].read(path, options)
    items = choose_part(items, options)
    if "limit" in options.values:
        items = items[: options.integer("limit", 0, least=1)]
    if not len(items):
        raise UsageError(_nothing(spec, kind, options, missing))
    return Dataset(spec, items, missing)


def open_many(specs: Sequence[str]) -> Dataset:
    """Several specifications, folders or picture files as one data set, in that order.

    One specification is `open_data`. Of several, the items of a bare path get the path as it was typed before their
    id, so that two folders may hold the same names; ids that are double all the same are a `UsageError`.
    """
    if len(specs) == 1:
        return open_data(specs[0])
    if not specs:
        raise UsageError("no pictures were named; type a folder, files, or kind:path")
    items: list[Item] = []
    missing = Skipped()
    for spec in specs:
        part = open_data(spec)
        bare = Path(spec).expanduser()
        for item in part:
            if bare.is_dir():
                item = replace(item, id=(Path(spec) / item.id).as_posix())
            items.append(replace(item, id=Path(spec).as_posix()) if _is_picture(bare) else item)
        missing.extend(part.missing)
    check_unique_ids(items, " ".join(specs))
    return Dataset(" ".join(specs), items, missing)


def parse(spec: str) -> tuple[str, Path, Options]:
    """A specification as (kind, path, options), with kind and keys checked. Raises `UsageError`."""
    if not spec:
        raise UsageError(f"an empty specification; type kind:path, where kind is one of {', '.join(READERS)}")
    body, query = (spec, "") if Path(spec).exists() else _split_query(spec)
    kind, colon, rest = body.partition(":")
    if not colon or Path(body).exists() or kind not in READERS:
        kind, rest = _bare_kind(spec, body, kind if colon else ""), body
    options = Options(spec, _values(spec, query))
    known = (*COMMON_KEYS, *READERS[kind].keys)
    for key in options.values:
        if key not in known:
            raise UsageError(f"{spec}: '{kind}:' has no key '{key}'{nearest(key, known)}")
    if not rest and kind != "scenes":
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
    """The kind of a path without one; a `UsageError` where there is no such path or its kind is not plain."""
    path = Path(body).expanduser()
    if path.is_dir():
        return _folder_kind(path)
    if _is_picture(path):
        return "folder"
    by_suffix = BY_SUFFIX.get(path.suffix.lower())
    if by_suffix and (path.is_file() or any(mark in body for mark in "*{[")):
        return by_suffix
    if path.is_file():
        if path.suffix.lower() == ".json":
            return _json_kind(path, spec)
        raise UsageError(f"{spec}: neither a picture, a folder of pictures, nor one of {' '.join(BY_SUFFIX)}")
    if len(kind) > 1 and "/" not in kind:
        raise UsageError(f"{spec}: unknown kind of data '{kind}'{nearest(kind, READERS)}")
    raise UsageError(f"{spec}: no such file or folder (or type kind:path, kinds: {', '.join(READERS)})")


def _json_kind(path: Path, spec: str) -> str:
    """The kind of a JSON file, by what it holds."""
    content = read_json(path)
    if isinstance(content, dict) and isinstance(images := content.get("images"), list):
        if isinstance(content.get("annotations"), list):
            return "coco"
        if images and isinstance(images[0], dict) and "sentences" in images[0]:
            return "karpathy"
    if isinstance(content, list) and content and isinstance(content[0], dict) and picture_path(content[0]):
        return "jsonl"
    raise UsageError(f"{spec}: which layout is this JSON file? type coco:{spec} or karpathy:{spec}")


def _folder_kind(folder: Path) -> str:
    """A folder that has a picture is one of pictures, whatever else lies there."""
    if any((folder / name).is_file() for name in SAVED):
        return "hf"
    found = "folder"
    try:
        for file in folder.iterdir():
            if file.suffix.lower() in SUFFIXES | CLIP_SUFFIXES:
                return "folder"
            found = BY_CONTENT.get(file.suffix.lower(), found)
    except OSError:  # its reader says why
        pass
    return found


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES | CLIP_SUFFIXES and path.is_file()


def _nothing(spec: str, kind: str, options: Options, missing: Skipped) -> str:
    left_out = missing.line(len(missing), what="were left out", shown=2)
    if left_out and "images" in READERS[kind].keys and "images" not in options.values:
        return f"{spec}: no items; {left_out}; if the pictures are elsewhere, type images=FOLDER"
    if left_out:
        return f"{spec}: no items; {left_out}"
    if kind == "folder":
        return f"{spec}: no pictures in this folder ({' '.join(sorted(SUFFIXES))} are looked for)"
    return f"{spec}: no items"
