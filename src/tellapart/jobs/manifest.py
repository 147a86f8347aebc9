"""The manifest: a list of a data set's shards, one per line. It does not list items.

- Tar and Parquet files that contain pictures are used as shards directly.
- A JSON Lines file is split into byte ranges at line ends; its lines are not parsed.
- For other data sets whose pictures are files, each shard's items are written to a list (JSON Lines), so that a worker
reads only its own items.
- Other data sets (pictures without files, such as `scenes`) are split into ranges, and a worker opens the whole data
set.

Paths are absolute; fsspec URLs (``s3://…``) are kept, and each worker downloads its shard.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import numpy as np

from tellapart.data import Dataset, open_data
from tellapart.data.dataset import select_items
from tellapart.data.file_patterns import expand_braces, expand_pattern, natural_key
from tellapart.data.pictures import FilePicture, StoredPicture
from tellapart.data.reader import READERS
from tellapart.data.readers.parquet import holds_pictures
from tellapart.data.selection import Options
from tellapart.data.specification import is_picture, parse
from tellapart.errors import PictureError, UsageError, nearest
from tellapart.jobs.storage import Folder, file_system, url_errors
from tellapart.types import Item
from tellapart.utils.strict_json import parse_json
from tellapart.utils.urls import is_url

SHARD_ITEMS = 1024  # a multiple of the captioning window, so that batches equal those of a single process
CHUNK_BYTES = 1 << 20
OF_THE_WHOLE = ("ids", "part", "limit")  # keys whose values count items over all files
URL = re.compile(r"(?:(?P<kind>[a-z0-9]+):)?(?P<url>[a-z][a-z0-9+]*://[^?]*)(?:\?(?P<query>.*))?")
URL_SUFFIXES = {".tar": "webdataset", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True, slots=True)
class Shard:
    """Some items of a data set; `tellapart.jobs.manifest.open_shard` opens them.

    kind, path, options: see `tellapart.data`; without ``split``.
    listed: whether ``path`` is a list in the job's folder.
    span: byte range of a JSON Lines file.
    items: range of item numbers in the data set.
    prefix: text before each id.
    splits: the splits to keep.
    count: number of items (an upper bound for lines); None if unknown.
    size: size in bytes.
    version: version of the file. A changed file makes a different job.
    """

    number: int
    path: str
    kind: str = ""
    options: dict[str, str] = field(default_factory=dict)
    listed: bool = False
    span: tuple[int, int] | None = None
    items: tuple[int, int] | None = None
    prefix: str = ""
    splits: tuple[str, ...] = ()
    count: int | None = None
    size: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        """The name used in messages."""
        if self.span is not None:
            return f"{self.path}, bytes {self.span[0]:,} to {self.span[1]:,}"
        return f"{self.path}, items {self.items[0]:,} to {self.items[1]:,}" if self.items is not None else self.path

    def to_json(self) -> dict[str, Any]:
        """Returns the shard's manifest entry: the fields that differ from their defaults."""
        return {key: value for key, value in asdict(self).items() if value not in (None, "", (), {}, False)} | {
            "number": self.number
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Shard:
        """Creates a shard from its manifest entry."""
        pairs: dict[str, Any] = {key: tuple(value[key]) for key in ("span", "items", "splits") if key in value}
        return cls(**{**value, **pairs})


@dataclass
class Manifest:
    """A manifest's totals. ``items`` is None if some shards have no count; ``notes`` are lines for the user."""

    file: Path
    shards: int = 0
    items: int | None = 0
    size: int = 0
    digest: str = ""
    notes: list[str] = field(default_factory=list)


def make_manifest(specs: Sequence[str], scratch: Path, shard_items: int = SHARD_ITEMS) -> Manifest:
    """Writes ``scratch/manifest.jsonl`` and, if lists are needed, ``scratch/lists/``.

    Raises `UsageError` if data cannot be opened or two shards would have equal ids.
    """
    manifest = Manifest(scratch / "manifest.jsonl")
    digest = hashlib.blake2b(digest_size=16)
    stems: dict[str, str] = {}
    with manifest.file.open("w", encoding="utf-8") as file:
        for shard in _all_shards(specs, scratch, shard_items, manifest):
            shard = replace(shard, number=manifest.shards)
            if shard.kind == "webdataset" and not shard.prefix:  # its ids include the file name
                before = stems.setdefault(Path(shard.path).stem, shard.path)
                if before != shard.path:
                    raise UsageError(
                        f"{before} and {shard.path} have the same name, which is part of the ids; rename one of them"
                    )
            line = json.dumps(shard.to_json(), sort_keys=True) + "\n"
            file.write(line)
            digest.update(line.encode())
            if shard.listed:
                digest.update((scratch / shard.path).read_bytes())
            manifest.shards += 1
            manifest.size += shard.size
            manifest.items = None if manifest.items is None or shard.count is None else manifest.items + shard.count
    if not manifest.shards:
        raise UsageError(f"{' '.join(specs)}: no items")
    manifest.digest = digest.hexdigest()
    return manifest


def read_manifest(lines: Iterator[bytes]) -> Iterator[Shard]:
    """Yields the shards of a manifest. Raises `UsageError` for an invalid line."""
    for number, line in enumerate(lines, start=1):
        try:
            if (shard := Shard.of(parse_json(line))).number != number - 1:
                raise ValueError
            yield shard
        except (ValueError, TypeError):
            raise UsageError(
                f"manifest.jsonl, line {number}: not a shard; pass --overwrite, or remove the job's folder"
            ) from None


def _all_shards(specs: Sequence[str], scratch: Path, shard_items: int, manifest: Manifest) -> Iterator[Shard]:
    if not specs:
        raise UsageError("no pictures were specified; pass a folder, files, or kind:path")
    lists = _Lists(scratch, shard_items)
    for spec in specs:
        if url := URL.fullmatch(spec):
            yield from _of_url(spec, url["kind"], url["url"], url["query"] or "", shard_items)
            continue
        bare = Path(spec).expanduser()
        # Gives the same ids as `open_many` if there are several specifications.
        prefix = Path(spec).as_posix() if len(specs) > 1 and bare.is_dir() else ""
        own_id = Path(spec).as_posix() if len(specs) > 1 and is_picture(bare) else ""
        yield from _of_path(spec, prefix, own_id, lists, shard_items, manifest)
    yield from lists.finish()


def _of_path(
    spec: str, prefix: str, own_id: str, lists: _Lists, shard_items: int, manifest: Manifest
) -> Iterator[Shard]:
    kind, path, options = parse(spec)
    READERS[kind]  # raises if the reader's extra is not installed
    whole = any(options.text(key) for key in OF_THE_WHOLE)
    base = Shard(0, "", kind, _without_split(options), prefix=prefix, splits=tuple(sorted(options.splits)))
    if kind in ("webdataset", "parquet") and not whole and (files := _files(kind, path, options)) is not None:
        yield from lists.finish()
        for file in files:
            status = file.stat() if file.is_file() else None
            size, version = (status.st_size, str(status.st_mtime_ns)) if status else (0, "")
            yield replace(base, path=str(file.absolute()), size=size, version=version)
    elif kind == "jsonl" and not whole and path.suffix.lower() != ".json" and not options.text("bytes"):
        yield from lists.finish()
        yield from _ranges(base, path, shard_items)
    else:
        dataset = open_data(spec)
        manifest.notes += dataset.report()
        if own_id:
            dataset = Dataset(spec, [replace(item, id=own_id) for item in dataset], dataset.missing)
        yield from lists.add(dataset, base, options)


def _files(kind: str, path: Path, options: Options) -> list[Path] | None:
    """Returns the tar or Parquet files in their reader's order; None if their pictures are stored outside them."""
    suffix = ".tar" if kind == "webdataset" else ".parquet"
    if path.is_dir():
        paths = path.glob("*.tar") if kind == "webdataset" else path.rglob("*.parquet")
        files = sorted(paths, key=lambda file: natural_key(file.name if kind == "webdataset" else str(file)))
    else:
        files = expand_pattern(path)
    if not files:
        raise UsageError(f"{path}: this folder contains no *{suffix} file")
    return files if kind == "webdataset" or holds_pictures(files, options) else None


def _ranges(base: Shard, path: Path, shard_items: int) -> Iterator[Shard]:
    """Splits a JSON Lines file into shards of ``shard_items`` lines each."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    version = str(path.stat().st_mtime_ns)
    with path.open("rb") as file:
        for start, stop, lines in cut_lines(iter(partial(file.read, CHUNK_BYTES), b""), shard_items):
            yield replace(
                base, path=str(path.absolute()), span=(start, stop), count=lines, size=stop - start, version=version
            )


def cut_lines(chunks: Iterator[bytes], lines: int) -> Iterator[tuple[int, int, int]]:
    """Yields (first byte, end, number of lines) for each run of ``lines`` lines in a text that is read in chunks."""

    start = done = seen = 0
    whole = True  # whether the last line ends with a line break
    for chunk in chunks:
        ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10)
        taken = 0
        while len(ends) - taken >= lines - seen:
            taken += lines - seen
            stop = done + int(ends[taken - 1]) + 1
            yield start, stop, lines
            start, seen = stop, 0
        seen += len(ends) - taken
        done, whole = done + len(chunk), chunk.endswith(b"\n")
    if done > start:
        yield start, done, seen + (not whole)


class _Lists:
    """Collects items with picture files into one list per shard, and other items into ranges of their data set."""

    def __init__(self, scratch: Path, shard_items: int) -> None:
        self._scratch, self._size = scratch, shard_items
        self._lines: list[str] = []
        self._written = 0

    def add(self, dataset: Dataset, base: Shard, options: Options) -> Iterator[Shard]:
        """Yields the shards that these items fill."""
        for start in range(0, len(dataset), self._size):
            stop = min(start + self._size, len(dataset))
            lines = [_line(item, base.prefix) for item in dataset[start:stop]]
            whole = [line for line in lines if line is not None]
            if len(whole) < len(lines):
                yield from self.finish()
                yield replace(base, path=options.spec, kind="", options={}, items=(start, stop), count=stop - start,
                              splits=())  # fmt: skip
                continue
            for line in whole:
                self._lines.append(line)
                if len(self._lines) == self._size:
                    yield from self.finish()

    def finish(self) -> Iterator[Shard]:
        """Yields the last list, which can be shorter, because shards do not span several data sets."""
        if not self._lines:
            return
        name = f"lists/{self._written:06d}.jsonl"
        content = "".join(self._lines).encode()
        (self._scratch / "lists").mkdir(exist_ok=True)
        (self._scratch / name).write_bytes(content)
        count, self._lines, self._written = len(self._lines), [], self._written + 1
        yield Shard(0, name, "jsonl", listed=True, count=count, size=len(content))


def _line(item: Item, prefix: str) -> str | None:
    """Formats an item as a line for the ``jsonl:`` reader; returns None if a line cannot represent it."""
    if not isinstance(item.picture, FilePicture) or item.truth is not None:
        return None
    record: dict[str, Any] = {"id": f"{prefix}/{item.id}" if prefix else item.id}
    record["image"] = str(item.picture.path.absolute())
    record |= {"captions": list(item.references)} if item.references else {}
    record |= {"split": item.split} if item.split else {}
    try:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        line.encode()
    except UnicodeEncodeError:  # the file name is not valid text
        return None
    return line


def _without_split(options: Options) -> dict[str, str]:
    values = {key: value for key, value in options.values.items() if key != "split"}
    if "images" in values:
        values["images"] = str(Path(values["images"]).expanduser().absolute())
    return values


# Addresses
def _of_url(spec: str, kind: str | None, url: str, query: str, shard_items: int) -> Iterator[Shard]:
    """Yields shards for files in an object store."""
    values = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
    options = Options(spec, {key: unquote(value) for key, value in values.items()})
    if whole := [key for key in OF_THE_WHOLE if options.text(key)]:
        raise UsageError(f"{spec}: {whole[0]}= applies to all files together; remove it, or specify fewer files")
    if kind is not None and kind not in URL_SUFFIXES.values():
        raise UsageError(f"{spec}: '{kind}' cannot be read from a URL{nearest(kind, {*URL_SUFFIXES.values()})}")
    files = _url_files(url, kind)
    for path, size, version in files:
        file_kind = kind or URL_SUFFIXES[Path(path).suffix.lower()]
        base = Shard(0, path, file_kind, _without_split(options), splits=tuple(sorted(options.splits)), size=size,
                     version=version)  # fmt: skip
        for key in base.options:
            if key not in READERS[file_kind].keys:
                raise UsageError(
                    f"{spec}: unknown key '{key}' for '{file_kind}:'{nearest(key, READERS[file_kind].keys)}"
                )
        if file_kind != "jsonl":
            yield base
            continue
        fs, root = file_system(path)
        with url_errors(path), fs.open(root, "rb", block_size=CHUNK_BYTES) as file:
            for start, stop, lines in cut_lines(iter(partial(file.read, CHUNK_BYTES), b""), shard_items):
                yield replace(base, span=(start, stop), count=lines, size=stop - start)


def _url_files(url: str, kind: str | None) -> list[tuple[str, int, str]]:
    """Returns (URL, size in bytes, version) of the files that a URL, pattern or folder refers to, in natural order."""
    fs, root = file_system(url)
    protocol = url.partition("://")[0]
    suffixes = [suffix for suffix, of in URL_SUFFIXES.items() if kind in (None, of)]
    entries: list[dict[str, Any]] = []
    with url_errors(url):
        for path in expand_braces(root):
            if any(mark in path for mark in "*["):
                entries += sorted(fs.glob(path, detail=True).values(), key=lambda info: natural_key(str(info["name"])))
            elif fs.isdir(path):
                inside = [info for info in fs.ls(path, detail=True) if Path(info["name"]).suffix.lower() in suffixes]
                entries += sorted(inside, key=lambda info: natural_key(str(info["name"])))
            else:
                entries.append(fs.info(path))
    files = [info for info in entries if info.get("type") == "file"]
    if not files or any(Path(info["name"]).suffix.lower() not in suffixes for info in files):
        raise UsageError(f"{url}: expected files whose names end in {' '.join(suffixes)}, got {len(files)} other files")
    return [
        (f"{protocol}://{str(info['name']).lstrip('/') if protocol != 'file' else info['name']}",
         int(info.get("size") or 0), str(info.get("ETag") or info.get("etag") or info.get("mtime") or ""))
        for info in files
    ]  # fmt: skip


PACKED = ("webdataset", "parquet")  # these files contain the pictures
SIGNATURE, KEY = methodcaller("signature"), methodcaller("key")


@contextmanager
def open_shard(shard: Shard, folder: Folder) -> Iterator[Dataset]:
    """Opens a shard's items. Removes downloaded files at the end of the block.

    Raises `UsageError` if a file is missing or has changed.
    """
    with TemporaryDirectory(prefix="tellapart-shard-") as scratch:
        dataset = _opened(shard, folder, Path(scratch))
        if shard.splits:
            kept = [number for number, item in enumerate(dataset) if item.split in shard.splits]
            dataset = Dataset(dataset.spec, select_items(dataset, kept), dataset.missing)
        if shard.prefix and not shard.listed:
            named = [replace(item, id=f"{shard.prefix}/{item.id}") for item in dataset]
            dataset = Dataset(dataset.spec, named, dataset.missing)
        yield dataset


def pictures_of(shard: Shard, dataset: Dataset) -> dict[str, str]:
    """Returns digests that show whether pictures on disk have been replaced.

    One covers ids, sizes and modification times; the other covers ids and contents.

    Returns {} for tar and Parquet files, whose version is recorded in the shard.
    """
    if shard.kind in PACKED:
        return {}
    return {"signatures": _digest(dataset, SIGNATURE), "contents": _digest(dataset, KEY)}


def pictures_changed(shard: Shard, folder: Folder, known: Mapping[str, str]) -> bool:
    """Returns whether a shard's pictures have changed since `pictures_of` returned ``known``.

    Reads the files only if sizes or modification times differ.
    """
    if shard.kind in PACKED:
        return False
    with open_shard(shard, folder) as dataset:
        same = _digest(dataset, SIGNATURE) == known.get("signatures")
        return not same and _digest(dataset, KEY) != known.get("contents")


def _digest(dataset: Dataset, read: Callable[[StoredPicture], object]) -> str:
    """Hashes the ids of the pictures on disk and what ``read`` returns for each (None: unreadable)."""
    digest = hashlib.blake2b(digest_size=16)
    for item in dataset:
        if isinstance(item.picture, StoredPicture):
            try:
                content = read(item.picture)
            except PictureError:
                content = None
            digest.update(f"{item.id}\0{content}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _opened(shard: Shard, folder: Folder, scratch: Path) -> Dataset:
    if shard.items is not None:  # missing items were reported when the job was planned, and belong to no shard
        whole = _whole(shard.path)
        return Dataset(whole.spec, select_items(whole, range(*shard.items)))
    options = dict(shard.options)
    if shard.listed:
        path = folder.local(shard.path, scratch)
    elif is_url(shard.path):
        path = _fetched(shard, scratch)
    else:
        path = Path(shard.path)
        if shard.span is not None:
            options["bytes"] = f"{shard.span[0]}-{shard.span[1]}"
    items, missing = READERS[shard.kind].read(path, Options(shard.name, options))
    return Dataset(shard.name, items, missing)


@lru_cache(maxsize=1)
def _whole(spec: str) -> Dataset:
    """Opens a whole data set, and caches it for its next shard."""
    return open_data(spec)


def _fetched(shard: Shard, scratch: Path) -> Path:
    """Downloads the shard's file, or its byte range, to a local file with the same name."""
    fs, root = file_system(shard.path)
    target = scratch / Path(root).name
    with url_errors(shard.path):
        if shard.span is None:
            fs.get_file(root, str(target))
        else:
            target.write_bytes(fs.cat_file(root, start=shard.span[0], end=shard.span[1]))
    return target
