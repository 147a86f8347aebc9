"""Starts a requested job, or resumes the job that is already in its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.errors import UsageError
from tellapart.jobs.job import ANEW, FAILED, JOB, MANIFEST, PROMPTS, STATUS, Job, now
from tellapart.jobs.json_files import write_object
from tellapart.jobs.manifest import SHARD_ITEMS, make_manifest
from tellapart.jobs.storage import Folder, open_folder
from tellapart.utils.checksums import sha256
from tellapart.utils.differing_keys import differing
from tellapart.utils.messages import say
from tellapart.utils.versions import VERSIONS


@dataclass(frozen=True)
class JobRequest:
    """A request to run a job.

    work: a key in `tellapart.jobs.works.table.WORKS`.
    settings: the work's settings, as plain JSON.
    deciding: the settings that affect the result. With the manifest, they determine the fingerprint.
    prompts: prompts for individual pictures, by id. Workers read them from `PROMPTS`.
    """

    work: str
    settings: Mapping[str, Any]
    deciding: Mapping[str, Any]
    prompts: Mapping[str, str] | None = None


def prepare(request: JobRequest, data: list[str], out: str, path: str, suffix: str, *, shard_items: int | None,
            overwrite: bool) -> Job:  # fmt: skip
    """Starts the requested job in the folder ``path``, or resumes it if the same job was started there before.

    ``shard_items``: the number of items per shard. If None, uses the number of the job to resume, or `SHARD_ITEMS` for
        a new job. Raises `UsageError` if the folder contains a different job.
    """
    folder = open_folder(path)
    before = None if overwrite or folder.read(JOB) is None else Job.open(path)
    size = shard_items or (before.value.get("shard_items") if before is not None else None) or SHARD_ITEMS
    with TemporaryDirectory(prefix="tellapart-job-") as scratch:
        manifest = make_manifest(data, Path(scratch), size)
        for note in manifest.notes:
            say(note)
        code = [VERSIONS[part] for part in ("decoding", "unknown_words")]
        deciding = {"work": request.work, **request.deciding, "data": manifest.digest, "code": code}
        prompts = Path(scratch) / PROMPTS
        if request.prompts is not None:
            with prompts.open("w", encoding="utf-8", newline="\n") as lines:
                lines.writelines(json.dumps(pair) + "\n" for pair in request.prompts.items())
            deciding["prompts"] = sha256(prompts)
        fingerprint = hashlib.blake2b(json.dumps(deciding, sort_keys=True).encode(), digest_size=16).hexdigest()
        if before is not None and before.fingerprint == fingerprint:
            before.settings = dict(request.settings)
            return before
        if before is not None:
            other = ", ".join(differing(before.value["deciding"], deciding))
            raise UsageError(f"{path} is a job with a different {other}; {ANEW}, or choose another output with -o")
        _clear(folder)
        lists = Path(scratch) / "lists"
        for file in sorted(lists.iterdir()) if lists.is_dir() else ():
            folder.put(file, f"lists/{file.name}")
        if request.prompts is not None:
            folder.put(prompts, PROMPTS)
        folder.put(manifest.file, MANIFEST)
        value = {
            "version": 1, "work": request.work, "fingerprint": fingerprint, "settings": dict(request.settings),
            "deciding": deciding, "typed": data, "shard_items": size, "out": out, "suffix": suffix,
            "shards": manifest.shards, "items": manifest.items, "bytes": manifest.size, "begun": now(),
        }  # fmt: skip
        write_object(folder, JOB, value)  # written last, because its presence marks the job as started
    return Job.open(path)


def _clear(folder: Folder) -> None:
    """Removes the files of a job that had different settings."""
    for name in (JOB, MANIFEST, STATUS, PROMPTS):
        folder.remove(name)
    inside = [name for name in folder.names("") if name.startswith("parts-")]
    for part in ("lists", FAILED, *inside):
        for name in folder.names(part):
            folder.remove(f"{part}/{name}")
