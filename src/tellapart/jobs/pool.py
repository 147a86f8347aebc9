"""A job's workers: Ray actors that process one shard at a time, and are replaced if they die."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tellapart import __version__
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.cluster import alive_nodes
from tellapart.jobs.job import Job
from tellapart.jobs.shard import Shard
from tellapart.jobs.worker import Reply, Worker
from tellapart.jobs.worker_share import Share
from tellapart.utils.messages import detail

POLL_SECONDS = 1.0
MAX_DEATHS = 3  # after this many deaths per worker without a finished shard, a death at startup ends the job


@dataclass
class Todo:
    """The remaining shards: the manifest's unfinished shards, and shards to retry."""

    manifest: Iterator[Shard]
    done: set[int]
    again: deque[Shard] = field(default_factory=deque)

    def take(self) -> Shard | None:
        """Returns the next shard, or None if no shard remains. Shards that have not been tried come first."""
        while (shard := next(self.manifest, None)) is not None:
            if shard.number not in self.done:
                return shard
        return self.again.popleft() if self.again else None


@dataclass(frozen=True)
class Event:
    """A shard's outcome: its ``summary``, or the ``reason`` why it failed.

    ``final``: whether another attempt would fail in the same way.
    ``blameless``: whether the shard did not cause the failure, because the worker's node died.
    """

    shard: Shard
    summary: dict[str, Any] | None = None
    reason: str = ""
    final: bool = False
    blameless: bool = False


class Pool:
    """A job's workers."""

    def __init__(self, ray: Any, job: Job, share: Share) -> None:
        self._ray, self._job, self._share = ray, job, share
        # maps pending replies to (worker, shard); None while models are loading
        self._running: dict[Any, tuple[Any, Shard | None]] = {}
        self._idle: list[Any] = []
        self._nodes: dict[Any, str] = {}
        self._deaths = 0

    @property
    def workers(self) -> int:
        """The number of workers that have loaded their models."""
        return len(self._idle) + sum(shard is not None for _, shard in self._running.values())

    @property
    def idle(self) -> bool:
        """Whether a worker is waiting for a shard."""
        return bool(self._idle)

    def events(self, todo: Todo, count: int, sample: int | None = None) -> Iterator[Event | None]:
        """Processes the shards on ``count`` workers. Yields the outcome of each shard, and None at least once a second.

        Args:
            sample: how many items to process per shard, without writing a result. If None, all items are processed and
                results are written.

        Raises:
            TellapartError: if workers cannot start, or if they run a different version of tellapart.
        """
        for _ in range(count):
            self._start()
        try:
            while True:
                while self.idle and (shard := todo.take()) is not None:
                    worker = self._idle.pop(0)
                    self._running[worker.run.remote(shard.to_json(), sample)] = worker, shard
                if self.idle and all(shard is None for _, shard in self._running.values()):
                    return
                ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    yield self._ended(reference)
                yield None
        finally:
            for worker in [*self._idle, *(worker for worker, _ in self._running.values())]:
                self._ray.kill(worker)

    def _start(self) -> None:
        """Requests a worker. It starts as soon as the cluster has room for it."""
        resources = {"num_cpus": self._share.cpus, "num_gpus": self._share.gpus}
        actor = self._ray.remote(max_restarts=0, max_task_retries=0, **resources)(Worker)
        worker = actor.remote(self._job.path, self._job.work, self._job.settings, os.getcwd())  # noqa: PTH109
        self._running[worker.start.remote()] = worker, None

    def _ended(self, reference: Any) -> Event | None:
        worker, shard = self._running.pop(reference)
        try:
            reply: Reply = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return self._died(worker, shard, error)
        if reply.get("traceback"):
            detail(reply["traceback"])
        if shard is None:
            self._check_started(reply)
            self._nodes[worker] = reply["node"]
        self._idle.append(worker)
        if shard is None:
            return None
        self._deaths = 0
        return Event(shard, reply.get("summary"), reply.get("error", ""), reply.get("final", False))

    def _check_started(self, reply: Reply) -> None:
        if "error" in reply:
            if reply["traceback"]:
                raise TellapartError(f"a worker cannot start: {reply['error']}")
            raise (UsageError if reply["status"] == UsageError.exit_code else TellapartError)(reply["error"])
        if reply["version"] != __version__:
            raise TellapartError(
                f"the worker on {reply['host']} has tellapart {reply['version']}, but this "
                f"machine has {__version__}; install the same version everywhere"
            )
        self._job.keep_models(reply["models"])

    def _died(self, worker: Any, shard: Shard | None, error: Exception) -> Event | None:
        """Replaces a worker that died."""
        reason = _reason(error)
        node = self._nodes.pop(worker, "")
        node_died = node not in alive_nodes(self._ray) if node else "node" in reason
        if not node_died:
            self._deaths += 1
        if shard is None and self._deaths >= MAX_DEATHS * self._share.count:
            raise TellapartError(f"workers terminate at startup: {reason}")
        self._ray.kill(worker)  # the worker may be alive but unreachable
        self._start()
        return None if shard is None else Event(shard, reason=reason, blameless=node_died)


def _reason(error: Exception) -> str:
    """Returns the reason why a worker died, on one line.

    Ray reports lost nodes and workers killed by its memory monitor, but it does not report signals.
    """
    text = " ".join(str(error).split())
    if type(error).__name__ == "OutOfMemoryError" or "running low on memory" in text:
        return "the machine ran out of memory, and Ray terminated the worker"
    if "node" in text and "died" in text and "worker process has died" not in text:
        return "the worker terminated with its node"
    if "worker process has died" in text or "Worker exit" in text:
        return "the worker terminated (a crash such as SIGSEGV, or SIGKILL if memory ran out)"
    return f"the worker terminated ({type(error).__name__}: {text})"
