"""The manifest of a job: the list of its data's shards, one per line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tellapart.data.kinds import is_picture
from tellapart.errors import UsageError
from tellapart.jobs.item_lists import ItemLists
from tellapart.jobs.shard import Shard
from tellapart.jobs.splitting import shards_on_disk
from tellapart.jobs.url_shards import URL, shards_at_url
from tellapart.utils.strict_json import parse_json

SHARD_ITEMS = 1024  # a multiple of the captioning window, so that batches are the same as in a single process


@dataclass
class Manifest:
    """A manifest's totals. ``items`` is None if some shards have no count. ``notes`` are messages for the user."""

    file: Path
    shards: int = 0
    items: int | None = 0
    size: int = 0
    digest: str = ""
    notes: list[str] = field(default_factory=list)


def make_manifest(specs: Sequence[str], scratch: Path, shard_items: int = SHARD_ITEMS) -> Manifest:
    """Writes ``scratch/manifest.jsonl`` and, if lists are needed, ``scratch/lists/``.

    Raises `UsageError` if data cannot be opened, or if the ids in two shards would collide.
    """
    manifest = Manifest(scratch / "manifest.jsonl")
    digest = hashlib.blake2b(digest_size=16)
    stems: dict[str, str] = {}
    with manifest.file.open("w", encoding="utf-8") as file:
        for shard in _all_shards(specs, scratch, shard_items, manifest):
            shard = replace(shard, number=manifest.shards)
            if shard.kind == "webdataset" and not shard.prefix:  # the ids include the file name
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
    """Yields a manifest's shards. Raises `UsageError` for an invalid line."""
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
        raise UsageError("no pictures to process; pass a folder, files, or kind:path")
    lists = ItemLists(scratch, shard_items)
    for spec in specs:
        if url := URL.fullmatch(spec):
            yield from lists.finish()
            yield from shards_at_url(spec, url["kind"], url["url"], url["query"] or "", shard_items)
            continue
        bare = Path(spec).expanduser()
        # Gives the same ids as `open_many` if there are several specifications.
        prefix = Path(spec).as_posix() if len(specs) > 1 and bare.is_dir() else ""
        own_id = Path(spec).as_posix() if len(specs) > 1 and is_picture(bare) else ""
        yield from shards_on_disk(spec, prefix, own_id, lists, shard_items, manifest.notes)
    yield from lists.finish()
