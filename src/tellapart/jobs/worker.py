"""The worker is a process that keeps its models loaded and processes one shard after another.

Errors are returned as one-line values, because the driver may not be able to unpickle an exception.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
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
from tellapart.jobs.json_files import write_object
from tellapart.jobs.replaced_pictures import pictures_of
from tellapart.jobs.scratch import scratch_folder
from tellapart.jobs.shard import Shard, open_shard
from tellapart.jobs.works.base import Done, Work, rows_file
from tellapart.jobs.works.table import make_work
from tellapart.utils.checksums import sha256

Reply = dict[str, Any]


class Worker:
    """Processes the shards of one job. ``settings``: the driver's settings, which may differ from those in the job's
    folder.

    ``here``: the driver's working directory, against which relative paths are resolved.
    """

    def __init__(self, path: str, work: str, settings: Mapping[str, Any], here: str) -> None:
        self._path, self._name, self._settings, self._here = path, work, settings, here
        self._job: Job | None = None
        self._work: Work | None = None

    def start(self) -> Reply:
        """Loads the models."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tempfile.tempdir = str(scratch_folder())
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

    def run(self, shard: Mapping[str, Any], sample: int | None = None) -> Reply:
        """Processes a shard, and writes its result and summary unless an error occurs.

        Args:
            sample: how many items to time, without writing a result. If None, processes the whole shard.
        """
        assert self._job is not None and self._work is not None
        try:
            return {"summary": _do(self._job, self._work, Shard.of(dict(shard)), sample)}
        except Exception as error:
            return _reply_of(error)


def _do(job: Job, work: Work, shard: Shard, sample: int | None) -> dict[str, Any]:
    """Processes a shard and returns its summary."""
    started = time.monotonic()
    with open_shard(shard, job.folder) as dataset, TemporaryDirectory(prefix="tellapart-part-") as folder:
        out = Path(folder) / f"part{job.suffix}"
        if sample is not None:
            items = Dataset(dataset.spec, list(dataset[:sample]), dataset.missing)
            started = time.monotonic()
            return summary_of(work.run(items, out), time.monotonic() - started, out, {}) | {"whole": len(dataset)}
        pictures = pictures_of(shard, dataset)
        done = work.run(dataset, out)
        if (beside := rows_file(out)).is_file():
            pictures["list"] = sha256(beside)
            job.folder.put(beside, job.pictures_name(shard.number))
        summary = summary_of(done, time.monotonic() - started, out, pictures)
        write_object(job.folder, job.summary_name(shard.number), summary)
        job.folder.put(out, job.part(shard.number))
    return summary


def _node() -> str:
    """Returns the id of this cluster node."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def summary_of(done: Done, seconds: float, out: Path, pictures: Mapping[str, str]) -> dict[str, Any]:
    """Returns the summary of a shard's result ``out``. ``pictures``: the return value of `pictures_of`."""
    return {
        "items": done.items, "written": done.written, "left_out": done.left_out,
        "left_out_count": done.left_out_count, "more": done.more, "seconds": round(seconds, 3),
        "bytes": out.stat().st_size, "sha256": sha256(out), "pictures": dict(pictures),
        "host": socket.gethostname(), "pid": os.getpid(),
    }  # fmt: skip


def _reply_of(error: Exception) -> Reply:
    """Returns an error as a value. ``final`` means that a retry would fail in the same way."""
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
    """Frees the GPU memory that the failed shard used."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
