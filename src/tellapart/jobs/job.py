"""A job's folder: its request, and its finished and failed shards."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.json_files import read_object, write_object
from tellapart.jobs.manifest import read_manifest
from tellapart.jobs.replaced_pictures import pictures_changed
from tellapart.jobs.shard import Shard
from tellapart.jobs.storage import Folder, open_folder
from tellapart.utils.checksums import sha256
from tellapart.utils.differing_keys import differing
from tellapart.utils.outputs import outputs_recorded_in
from tellapart.utils.progress import track
from tellapart.utils.strict_json import parse_json
from tellapart.utils.urls import is_url

JOB, MANIFEST, STATUS, FAILED = "job.json", "manifest.jsonl", "status.json", "failed"
PROMPTS = "prompts.jsonl"  # an id and its prompt on each line, in the order of the data
SUFFIX = ".job"  # suffix of the job's folder, which is created next to the result
# The expected type for each key. A file with any other content counts as damaged.
KEYS = {"work": str, "settings": dict, "fingerprint": str, "deciding": dict, "typed": list, "out": str, "suffix": str,
        "shards": int, "items": int | None, "bytes": int}  # fmt: skip
SUMMARY = {"items": int, "written": int, "left_out": list, "left_out_count": int, "more": dict, "bytes": int,
           "sha256": str, "pictures": dict}  # fmt: skip
ASIDE = {"shard": int, "name": str, "reason": str, "attempts": int}
# some commands (boost, eval, bags mine) do not delete their job folder, so the user may have to
ANEW = "pass --overwrite, or remove that folder, to start over"


class Job:
    """An existing job. ``value`` is the content of ``job.json``."""

    def __init__(self, folder: Folder, path: str, value: dict[str, Any]) -> None:
        self.folder, self.path, self.value = folder, path, value
        self.work, self.settings = value["work"], dict(value["settings"])
        self.fingerprint, self.suffix = value["fingerprint"], value["suffix"]
        self.shards, self.items = value["shards"], value["items"]
        self.size, self.out = value["bytes"], value["out"]

    @classmethod
    def open(cls, path: str) -> Job:
        """Opens the job in the folder ``path``. Raises `UsageError` if the folder contains no job."""
        folder = open_folder(path)
        if folder.read(JOB) is None:
            raise UsageError(
                f"{path} is not a job folder (it contains no {JOB}); pass the folder whose name ends in {SUFFIX}"
            )
        value = read_object(folder, JOB, KEYS)
        if value is None or not re.fullmatch(r"[0-9a-f]{32}\.\w+", value["fingerprint"] + value["suffix"]):
            raise UsageError(f"{path}/{JOB}: damaged; {ANEW}")
        return cls(folder, path, value)

    def manifest(self) -> Iterator[Shard]:
        """Yields the shards, in order."""
        return read_manifest(self.folder.lines(MANIFEST))

    @property
    def parts(self) -> str:
        """The folder for results. It is named after the fingerprint, so that another job's results are never used."""
        return f"parts-{self.fingerprint[:12]}"

    def part(self, number: int) -> str:
        """Returns the name of the file with a shard's result."""
        return f"{self.parts}/{number:06d}{self.suffix}"

    def summary_name(self, number: int) -> str:
        """Returns the name of the file with a shard's summary, which contains counts, seconds and unreadable
        pictures.
        """
        return f"{self.parts}/{number:06d}.summary.json"

    def pictures_name(self, number: int) -> str:
        """Returns the name of the file that lists a shard's pictures."""
        return f"{self.parts}/{number:06d}.pictures"

    @staticmethod
    def prompts(path: str, ids: Set[str]) -> dict[str, str]:
        """Reads the prompts for the pictures ``ids`` from the job folder ``path``.

        Raises `TellapartError` if a picture has no prompt.
        """
        pairs = map(parse_json, open_folder(path).lines(PROMPTS))
        prompts = {key: prompt for key, prompt in pairs if key in ids}
        if lacking := ids - prompts.keys():
            raise TellapartError(f"{path}/{PROMPTS} contains no prompt for '{min(lacking)}'; {ANEW}")
        return prompts

    def done(self) -> set[int]:
        """Returns the numbers of all shards that have a result."""
        names = self.folder.names(self.parts)
        return {
            int(name.partition(".")[0])
            for name in names
            if name.endswith(self.suffix) and not name.endswith(".summary.json")
        }

    def summary(self, number: int) -> dict[str, Any]:
        """Returns the summary of a shard's result. Raises `TellapartError` if the summary is missing or damaged."""
        name = self.summary_name(number)
        summary = read_object(self.folder, name, SUMMARY)
        if summary is None:
            raise TellapartError(f"{self.path}/{name}: missing or damaged")
        return summary

    def result(self, number: int, scratch: Path) -> Path:
        """Returns a local path to the file with a shard's result.

        Raises `TellapartError` if the file does not contain the bytes that the worker wrote.
        """
        summary, name = self.summary(number), self.part(number)
        path = self.folder.local(name, scratch)
        if (size := path.stat().st_size) != summary["bytes"]:
            raise TellapartError(f"{self.path}/{name} has {size:,} bytes, but {summary['bytes']:,} were written")
        if sha256(path) != summary["sha256"]:
            raise TellapartError(f"{self.path}/{name} is damaged: its SHA-256 differs from the one in its summary")
        return path

    def pictures(self, number: int, scratch: Path) -> Path | None:
        """Returns a local path to the file that lists a shard's pictures, or None if the worker wrote no such file.

        Raises `TellapartError` if the file does not contain the bytes that the worker wrote.
        """
        if (written := self.summary(number)["pictures"].get("list")) is None:
            return None
        name = self.pictures_name(number)
        path = self.folder.local(name, scratch)
        if not path.is_file() or sha256(path) != written:
            raise TellapartError(
                f"{self.path}/{name} is missing, or damaged: its SHA-256 differs from the one in its summary"
            )
        return path

    def unsound(self, *, pictures: bool = False) -> dict[int, str]:
        """Returns the finished shards whose results are damaged, each with the reason.

        ``pictures``: whether to also include shards whose pictures have been replaced since.
        """
        done, reasons = self.done(), dict[int, str]()
        for shard in track(self.manifest(), label="checking shards", total=self.shards) if done else ():
            if shard.number in done:
                try:
                    with TemporaryDirectory(prefix="tellapart-check-") as scratch:
                        self.result(shard.number, Path(scratch))
                        self.pictures(shard.number, Path(scratch))
                    if pictures and pictures_changed(shard, self.folder, self.summary(shard.number)["pictures"]):
                        reasons[shard.number] = f"{shard.name}: some of its pictures were replaced"
                except TellapartError as error:
                    reasons[shard.number] = str(error)
        return reasons

    def set_aside(self, shard: Shard, reason: str, attempts: int) -> None:
        """Sets a shard aside and records why."""
        value = {"shard": shard.number, "name": shard.name, "reason": reason, "attempts": attempts, "at": now()}
        write_object(self.folder, f"{FAILED}/{shard.number:06d}.json", value)

    def failed(self) -> list[dict[str, Any]]:
        """Returns the shards that were set aside and have not been finished since, in order."""
        names = sorted(self.folder.names(FAILED))
        done, failures = self.done() if names else set(), []
        for name in names:
            path = f"{FAILED}/{name}"
            if (one := read_object(self.folder, path, ASIDE)) is not None:
                failures.append(one)
            elif self.folder.read(path) is not None:  # None: a new run of the job has just removed it
                raise UsageError(f"{self.path}/{path}: damaged; remove it and run the job's command again")
        return [one for one in failures if one["shard"] not in done]

    def forget_failed(self) -> None:
        """Removes the records of failed shards, so that these shards are tried again."""
        for name in self.folder.names(FAILED):
            self.folder.remove(f"{FAILED}/{name}")

    def keep_models(self, models: dict[str, Any]) -> None:
        """Records which models were loaded. Raises `UsageError` if the job was started with different models."""
        known = self.value.get("models")
        if known is None:
            self.value["models"] = models
            write_object(self.folder, JOB, self.value)
        elif known != models:
            other = ", ".join(differing(known, models))
            raise UsageError(f"{self.path} was started with a different {other}; {ANEW}")


def recorded_results(path: str) -> AbstractContextManager[None]:
    """Within the block, records in the job folder ``path`` which results tellapart writes, in case the cache is
    emptied.
    """
    return nullcontext() if is_url(path) else outputs_recorded_in(Path(path).expanduser() / "outputs")


def now() -> str:
    """Returns the current time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
