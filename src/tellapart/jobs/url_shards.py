"""Splits files in an object store into shards: tar and Parquet files, and byte ranges of JSON Lines files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tellapart.data.file_patterns import expand_braces, natural_key
from tellapart.data.options import Options
from tellapart.data.reader import READERS
from tellapart.errors import UsageError, nearest
from tellapart.jobs.file_systems import file_system, url_errors
from tellapart.jobs.shard import Shard
from tellapart.jobs.splitting import CHUNK_BYTES, KEYS_OF_ALL_FILES, file_shards, without_split

URL = re.compile(r"(?:(?P<kind>[a-z0-9]+):)?(?P<url>[a-z][a-z0-9+]*://[^?]*)(?:\?(?P<query>.*))?")
URL_SUFFIXES = {".tar": "webdataset", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def shards_at_url(spec: str, kind: str | None, url: str, query: str, shard_items: int) -> Iterator[Shard]:
    """Yields shards for files in an object store."""
    values = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
    options = Options(spec, {key: unquote(value) for key, value in values.items()})
    if whole := [key for key in KEYS_OF_ALL_FILES if options.text(key)]:
        raise UsageError(
            f"{spec}: {whole[0]}= applies to all files together, which is not supported here; remove {whole[0]}="
        )
    if kind is not None and kind not in URL_SUFFIXES.values():
        raise UsageError(f"{spec}: '{kind}' cannot be read from a URL{nearest(kind, {*URL_SUFFIXES.values()})}")
    for path, size, version in _url_files(url, kind):
        file_kind = kind or URL_SUFFIXES[Path(path).suffix.lower()]
        shard = Shard(0, path, file_kind, without_split(options), splits=tuple(sorted(options.splits)), size=size,
                      version=version)  # fmt: skip
        known = READERS[file_kind].keys
        for key in shard.options:
            if key not in known:
                raise UsageError(f"{spec}: unknown key '{key}' for '{file_kind}:'{nearest(key, known)}")
        fs, root = file_system(path)
        with url_errors(path):
            yield from file_shards(shard, shard_items, partial(fs.open, root, "rb", block_size=CHUNK_BYTES))


def _url_files(url: str, kind: str | None) -> list[tuple[str, int, str]]:
    """Returns (URL, size in bytes, version) for each file that a URL, pattern or folder refers to, in natural order."""
    fs, root = file_system(url)
    protocol = url.partition("://")[0]
    suffixes = [suffix for suffix, of in URL_SUFFIXES.items() if kind in (None, of)]
    files: list[dict[str, Any]] = []
    with url_errors(url):
        for path in expand_braces(root):
            if any(mark in path for mark in "*["):
                entries = fs.glob(path, detail=True).values()
            elif fs.isdir(path):
                entries = [info for info in fs.ls(path, detail=True) if Path(info["name"]).suffix.lower() in suffixes]
            else:
                entries = [fs.info(path)]
            entries = [info for info in entries if info.get("type") == "file"]
            files += sorted(entries, key=lambda info: natural_key(str(info["name"])))
    others = sum(Path(info["name"]).suffix.lower() not in suffixes for info in files)
    if not files or others:
        raise UsageError(f"{url}: expected files whose names end in {' '.join(suffixes)}, got {others} other files")
    return [
        (f"{protocol}://{str(info['name']).lstrip('/') if protocol != 'file' else info['name']}",
         int(info.get("size") or 0), str(info.get("ETag") or info.get("etag") or info.get("mtime") or ""))
        for info in files
    ]  # fmt: skip
