"""What runs in a worker: one process, which keeps its models loaded and does one shard after the other.

Errors come back as values, one line each: an exception that Ray carries would have to be made anew in the driver.
"""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tellapart import __version__
from tellapart.data import Dataset
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.job import Job
from tellapart.jobs.manifest import Shard
from tellapart.jobs.opening import open_shard, pictures_of
from tellapart.jobs.works import Done, Work, make_work
from tellapart.utils.checksums import sha256

Reply = dict[str, Any]


class Worker:
    """Does the shards of one job. ``settings``: as the driver has them, not as they stand in the job's folder.

    ``here``: the driver's folder, from which relative paths are meant.
    """

    def __init__(self, path: str, work: str, settings: Mapping[str, Any], here: str) -> None:
        self._path, self._name, self._settings, self._here = path, work, settings, here
        self._job: Job | None = None
        self._work: Work | None = None

    def start(self) -> Reply:
        """Load the models."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            if Path(self._here).is_dir():
                os.chdir(self._here)
            self._job = Job.open(self._path)
            self._work = make_work(self._name, self._settings)
            models = self._work.models()
        except Exception as error:
            return _reply_of(error)
        who = {"host": socket.gethostname(), "pid": os.getpid(), "node": _node()}
        return {"models": models, "version": __version__, **who}

    def run(self, shard: Mapping[str, Any]) -> Reply:
        """Do a shard: its result and its summary are there when this returns, unless it says why not."""
        assert self._job is not None and self._work is not None
        started = time.monotonic()
        found = Shard.of(dict(shard))
        try:
            with open_shard(found, self._job.folder) as dataset, TemporaryDirectory(prefix="tellapart-part-") as folder:
                out = Path(folder) / f"part{self._job.suffix}"
                pictures = pictures_of(found, dataset)
                done = self._work.run(dataset, out)
                summary = summary_of(done, time.monotonic() - started, out, pictures)
                self._job.folder.write(self._job.summary_name(found.number), (json.dumps(summary) + "\n").encode())
                self._job.folder.put(out, self._job.part(found.number))
        except Exception as error:
            return _reply_of(error)
        return {"summary": summary}

    def sample(self, shard: Mapping[str, Any], most: int) -> Reply:
        """Do the first ``most`` items of a shard, to see how long they take; nothing is kept."""
        assert self._job is not None and self._work is not None
        try:
            with (
                open_shard(Shard.of(dict(shard)), self._job.folder) as dataset,
                TemporaryDirectory(prefix="tellapart-part-") as folder,
            ):
                whole = len(dataset)
                some = Dataset(dataset.spec, list(dataset[:most]), dataset.missing)
                started = time.monotonic()
                out = Path(folder) / f"part{self._job.suffix}"
                done = self._work.run(some, out)
                summary = summary_of(done, time.monotonic() - started, out, {})
        except Exception as error:
            return _reply_of(error)
        return {"summary": summary, "whole": whole}


def _node() -> str:
    """The id of this node of the cluster."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def summary_of(done: Done, seconds: float, out: Path, pictures: Mapping[str, str]) -> dict[str, Any]:
    """What is written down of a shard's result ``out``. ``pictures``: see `tellapart.jobs.opening.pictures_of`."""
    return {
        "items": done.items, "written": done.written, "left_out": done.left_out[:100],
        "left_out_count": done.left_out_count, "more": done.more, "seconds": round(seconds, 3),
        "bytes": out.stat().st_size, "sha256": sha256(out), "pictures": dict(pictures),
        "host": socket.gethostname(), "pid": os.getpid(),
    }  # fmt: skip


def _reply_of(error: Exception) -> Reply:
    """An error as a value. ``final``: trying again would end in the same way."""
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory:
        _free_memory()
    line = str(error) if isinstance(error, TellapartError) else f"{type(error).__name__}: {error}"
    return {
        "error": " ".join(line.split()),
        "final": isinstance(error, UsageError),
        "status": getattr(error, "exit_code", 1),
        "traceback": "" if isinstance(error, TellapartError) else traceback.format_exc(),
    }


def _free_memory() -> None:
    """Give back what the failed shard held on a GPU."""
    import gc
    import sys

    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
