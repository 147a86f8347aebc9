"""A job's folder: the request, finished and failed shards, and progress, all read from its files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.manifest import SHARD_ITEMS, Shard, make_manifest, pictures_changed, read_manifest
from tellapart.jobs.storage import Folder, open_folder
from tellapart.utils.checksums import sha256
from tellapart.utils.listed_names import differing
from tellapart.utils.messages import say
from tellapart.utils.outputs import outputs_recorded_in
from tellapart.utils.progress import clock, track
from tellapart.utils.strict_json import parse_json
from tellapart.utils.urls import is_url
from tellapart.utils.versions import VERSIONS

JOB, MANIFEST, STATUS, FAILED = "job.json", "manifest.jsonl", "status.json", "failed"
PROMPTS = "prompts.jsonl"  # one id and prompt per line, in the order of the data
SUFFIX = ".job"  # suffix of the job's folder, which is next to the result
# expected types by key; a file with any other content is damaged
KEYS = {"work": str, "settings": dict, "fingerprint": str, "deciding": dict, "typed": list, "out": str, "suffix": str,
        "shards": int, "items": int | None, "bytes": int}  # fmt: skip
SUMMARY = {"items": int, "written": int, "left_out": list, "left_out_count": int, "more": dict, "bytes": int,
           "sha256": str, "pictures": dict}  # fmt: skip
ASIDE = {"shard": int, "name": str, "reason": str, "attempts": int}
# boost, eval and bags mine do not delete their job folders
ANEW = "pass --overwrite, or remove that folder, to start over"


@dataclass(frozen=True)
class JobRequest:
    """The request for a job.

    work: a key of `tellapart.jobs.works.table.WORKS`.
    settings: the work's settings, as plain JSON.
    deciding: the settings that affect the result. With the manifest, they determine the fingerprint.
    prompts: prompts for individual pictures, by id; workers read them from `PROMPTS`.
    """

    work: str
    settings: Mapping[str, Any]
    deciding: Mapping[str, Any]
    prompts: Mapping[str, str] | None = None


class Job:
    """An existing job. ``value``: the content of ``job.json``."""

    def __init__(self, folder: Folder, path: str, value: dict[str, Any]) -> None:
        self.folder, self.path, self.value = folder, path, value
        self.work, self.settings = value["work"], dict(value["settings"])
        self.fingerprint, self.suffix = value["fingerprint"], value["suffix"]
        self.shards, self.items = value["shards"], value["items"]
        self.size, self.out = value["bytes"], value["out"]

    @classmethod
    def open(cls, path: str) -> Job:
        """Opens the job in a folder. Raises `UsageError` if the folder contains no job."""
        folder = open_folder(path)
        content = folder.read(JOB)
        if content is None:
            raise UsageError(
                f"{path} is not a job folder (it contains no {JOB}); specify the folder that ends in {SUFFIX}"
            )
        value = read_value(content, KEYS)
        if value is None or not re.fullmatch(r"[0-9a-f]{32}\.\w+", value["fingerprint"] + value["suffix"]):
            raise UsageError(f"{path}/{JOB}: damaged; {ANEW}")
        return cls(folder, path, value)

    def manifest(self) -> Iterator[Shard]:
        """Yields the shards, in order."""
        return read_manifest(self.folder.lines(MANIFEST))

    @property
    def parts(self) -> str:
        """The results folder, named after the fingerprint, so that another job's results are never used."""
        return f"parts-{self.fingerprint[:12]}"

    def part(self, number: int) -> str:
        """Returns the file name of a shard's result."""
        return f"{self.parts}/{number:06d}{self.suffix}"

    def summary_name(self, number: int) -> str:
        """Returns the file name of a shard's summary: counts, seconds and unreadable pictures."""
        return f"{self.parts}/{number:06d}.summary.json"

    def pictures_name(self, number: int) -> str:
        """Returns the file name of the list of a shard's pictures."""
        return f"{self.parts}/{number:06d}.pictures"

    @staticmethod
    def prompts(path: str, ids: Set[str]) -> dict[str, str]:
        """Returns these pictures' prompts from the job folder ``path``.

        Raises `TellapartError` if the file lacks one.
        """
        pairs = map(parse_json, open_folder(path).lines(PROMPTS))
        prompts = {key: prompt for key, prompt in pairs if key in ids}
        if lacking := ids - prompts.keys():
            raise TellapartError(f"{path}/{PROMPTS} contains no prompt for '{min(lacking)}'; {ANEW}")
        return prompts

    def done(self) -> set[int]:
        """Returns the numbers of the shards that have a result."""
        names = self.folder.names(self.parts)
        return {
            int(name.partition(".")[0])
            for name in names
            if name.endswith(self.suffix) and not name.endswith(".summary.json")
        }

    def summary(self, number: int) -> dict[str, Any]:
        """Returns the summary of a shard's result. Raises `TellapartError` if it is missing or damaged."""
        name = self.summary_name(number)
        summary = read_value(self.folder.read(name), SUMMARY)
        if summary is None:
            raise TellapartError(f"{self.path}/{name}: missing or damaged")
        return summary

    def result(self, number: int, scratch: Path) -> Path:
        """Returns a local path to a shard's result.

        Raises `TellapartError` if its bytes are not those that the worker wrote.
        """
        summary = self.summary(number)
        path = self.folder.local(self.part(number), scratch)
        if (size := path.stat().st_size) != summary["bytes"]:
            raise TellapartError(
                f"{self.path}/{self.part(number)} has {size:,} bytes, but {summary['bytes']:,} were written"
            )
        if sha256(path) != summary["sha256"]:
            raise TellapartError(
                f"{self.path}/{self.part(number)} is damaged: its SHA-256 differs from that in its summary"
            )
        return path

    def pictures(self, number: int, scratch: Path) -> Path | None:
        """Returns a local path to the list of a shard's pictures; None if its worker wrote none.

        Raises `TellapartError` if its bytes are not those that the worker wrote.
        """
        if (written := self.summary(number)["pictures"].get("list")) is None:
            return None
        name = self.pictures_name(number)
        path = self.folder.local(name, scratch)
        if not path.is_file() or sha256(path) != written:
            raise TellapartError(
                f"{self.path}/{name} is missing, or damaged: its SHA-256 differs from that in its summary"
            )
        return path

    def unsound(self, *, pictures: bool = False) -> dict[int, str]:
        """Returns the finished shards whose results are damaged, with reasons.

        ``pictures``: whether to include shards whose pictures have been replaced since.
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
        """Sets a shard aside, and records the reason."""
        value = {"shard": shard.number, "name": shard.name, "reason": reason, "attempts": attempts, "at": now()}
        self.folder.write(f"{FAILED}/{shard.number:06d}.json", (json.dumps(value, indent=1) + "\n").encode())

    def failed(self) -> list[dict[str, Any]]:
        """Returns the shards that were set aside and are not yet done, in order."""
        names = sorted(self.folder.names(FAILED))
        done, failures = self.done() if names else set(), []
        for name in names:
            if (content := self.folder.read(f"{FAILED}/{name}")) is None:
                continue
            if (one := read_value(content, ASIDE)) is None:
                raise UsageError(f"{self.path}/{FAILED}/{name}: damaged; remove it and run the job's command again")
            failures.append(one)
        return [one for one in failures if one["shard"] not in done]

    def forget_failed(self) -> None:
        """Removes the records of failed shards, so that they are tried again."""
        for name in self.folder.names(FAILED):
            self.folder.remove(f"{FAILED}/{name}")

    def keep_models(self, models: dict[str, Any]) -> None:
        """Records the identity of the loaded models. Raises `UsageError` if the job was started with other models."""
        known = self.value.get("models")
        if known is None:
            self.value["models"] = models
            self.folder.write(JOB, _text(self.value))
        elif known != models:
            other = ", ".join(differing(known, models))
            raise UsageError(f"{self.path} was started with a different {other}; {ANEW}")


def recorded_results(path: str) -> AbstractContextManager[None]:
    """Records in the job folder ``path`` which results tellapart wrote, in case the cache is emptied."""
    return nullcontext() if is_url(path) else outputs_recorded_in(Path(path).expanduser() / "outputs")


def prepare(request: JobRequest, data: list[str], out: str, path: str, suffix: str, *, shard_items: int | None,
            overwrite: bool) -> Job:  # fmt: skip
    """Starts the requested job in the folder ``path``, or resumes it if the same job was started there.

    ``shard_items``: items per shard. None: as in the job to resume, or `SHARD_ITEMS` for a new job. Raises `UsageError`
    if the folder contains another job.
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
        folder.write(JOB, _text(value))  # written last, because its presence marks the job as started
    return Job.open(path)


def _clear(folder: Folder) -> None:
    """Removes the files of a job with other settings."""
    for name in (JOB, MANIFEST, STATUS, PROMPTS):
        folder.remove(name)
    inside = [name for name in folder.names("") if name.startswith("parts-")]
    for part in ("lists", FAILED, *inside):
        for name in folder.names(part):
            folder.remove(f"{part}/{name}")


def read_value(content: bytes | None, keys: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parses a JSON object with values of these types; returns None for any other content."""
    try:
        value = parse_json((content or b"").decode())
    except ValueError:
        return None
    whole = isinstance(value, dict) and all(key in value and isinstance(value[key], keys[key]) for key in keys)
    return value if whole else None


def now() -> str:
    """Returns the current time, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


def _text(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


PULSE = {"state": str, "at": int | float, "pid": int, "host": str, "workers": int, "items_per_second": int | float,
         "seconds_left": int | float | None}  # fmt: skip
EVERY_SECONDS = 2.0
SILENT_SECONDS = 60.0  # a driver without an update for this long is considered dead


@dataclass
class Pulse:
    """A job's progress, written by its driver every two seconds. ``new``: how many of ``done`` this run finished."""

    job: Job
    state: str = "running"
    done: int = 0
    new: int = 0
    items: int = 0
    failed: int = 0
    workers: int = 0
    retries: int = 0
    _started: float = field(default_factory=time.monotonic)
    _written: float = 0.0

    def add(self, items: int) -> None:
        """Counts a finished shard."""
        self.done, self.new, self.items = self.done + 1, self.new + 1, self.items + items

    @property
    def items_per_second(self) -> float:
        """The average rate since the driver started."""
        return self.items / max(1e-9, time.monotonic() - self._started)

    def write(self, *, always: bool = False) -> None:
        """Writes the status if an update is due. ``always``: even if it is not."""
        if not always and time.monotonic() - self._written < EVERY_SECONDS:
            return
        self._written = time.monotonic()
        per_second = self.new / max(1e-9, self._written - self._started)
        left = self.job.shards - self.done
        value = {
            "state": self.state, "shards_per_second": per_second, "items_per_second": self.items_per_second,
            "workers": self.workers, "retries": self.retries, "at": time.time(), "host": socket.gethostname(),
            "pid": os.getpid(), "seconds_left": left / per_second if per_second else None,
        }  # fmt: skip
        self.job.folder.write(STATUS, (json.dumps(value) + "\n").encode())


def status_of(job: Job) -> dict[str, Any]:
    """Returns a job's status; ``state`` is waiting, running, stopped, finished, or failed (shards set aside)."""
    done, failed = job.done(), job.failed()
    pulse = read_value(job.folder.read(STATUS), PULSE) or {}
    heard = time.time() - pulse["at"] if pulse else None
    state = str(pulse.get("state", "waiting"))
    if state == "running" and heard is not None and abs(heard) > SILENT_SECONDS:  # negative if a clock was set back
        state = "stopped"
    running = state == "running" and len(done) < job.shards
    unsound = {} if running else job.unsound()  # a running job checked its results when it started
    if not running:
        state = "finished" if len(done) == job.shards and not unsound else "stopped" if state == "finished" else state
    return {
        "job": job.path, "work": job.work, "state": state, "shards": job.shards, "done": len(done) - len(unsound),
        "set_aside": failed, "unsound": list(unsound.values()), "items": job.items, "out": job.out,
        "begun": job.value.get("begun"), "now": now(),
        "workers": pulse.get("workers") if running else 0,
        "items_per_second": pulse.get("items_per_second") if running else None,
        "seconds_left": pulse.get("seconds_left") if running else None,
        "driver": f"process {pulse['pid']} on host {pulse['host']}" if pulse else None,
        "seconds_since_heard": None if heard is None else round(heard, 1),
    }  # fmt: skip


def status_lines(status: dict[str, Any]) -> list[str]:
    """Formats the status as lines of text."""
    percent = 100 * status["done"] / max(1, status["shards"])
    items = f", {status['items']:,} items" if status["items"] is not None else ""
    lines = [
        f"{status['job']}: {status['work']}, {status['state']}",
        f"{status['done']:,} of {status['shards']:,} shards done ({percent:.1f}%){items}",
    ]
    if status["state"] == "running":
        left = status["seconds_left"]
        rate = status["items_per_second"] or 0.0
        lines.append(
            f"{status['workers']} workers, {rate:,.1f} items/s, {'?' if left is None else clock(left)} left; driver: "
            f"{status['driver']}"
        )
    if status["state"] == "stopped" and status["driver"] is not None:
        heard = status["seconds_since_heard"]
        last = (
            f"last reported {clock(heard)} ago"
            if heard >= 0
            else f"reported {clock(-heard)} ahead of this machine's clock"
        )
        lines.append(f"the driver, {status['driver']}, {last}; run the same command again to resume")
    lines += [f"damaged: {reason}; run the same command again to repeat this shard" for reason in status["unsound"]]
    lines += [failed_line(failed) for failed in status["set_aside"]]
    return lines


def failed_line(failed: dict[str, Any]) -> str:
    """Describes a failed shard in one line."""
    tries = f" ({failed['attempts']} attempts)" if failed["attempts"] > 1 else ""
    return f"failed: shard {failed['shard']} ({failed['name']}): {failed['reason']}{tries}"
