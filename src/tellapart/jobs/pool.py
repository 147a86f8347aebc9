"""Workers as Ray actors: made, given shards, and replaced where one dies."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from tellapart import __version__
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.cluster import Share, alive_nodes
from tellapart.jobs.job import Job
from tellapart.jobs.manifest import Shard
from tellapart.jobs.worker import Reply, Worker
from tellapart.utils.messages import detail

DEATHS_AT_START = 3  # for each worker, with no shard finished in between: the job ends


@dataclass
class Slot:
    """A place for a worker. ``shard`` is what it does now; ``node`` where it is, once it is there."""

    actor: Any
    node: str = ""
    shard: Shard | None = None
    ready: bool = False


@dataclass(frozen=True)
class Event:
    """What happened: a reply to a shard, or the worker's death on the way (``reply`` None).

    ``blameless``: its node went with it, so the shard is not to blame.
    """

    shard: Shard
    reply: Reply | None
    reason: str = ""
    blameless: bool = False


@dataclass
class Pool:
    """The workers of a job. ``models``: what they say of their models; it is the same for all, and kept in the job."""

    ray: Any
    job: Job
    share: Share
    _slots: dict[Any, Slot] = field(default_factory=dict)  # by what is waited for
    _idle: list[Slot] = field(default_factory=list)
    _deaths: int = 0

    def start(self, shards: int) -> None:
        """Ask for the workers, no more than there are shards to do; they come as the cluster has room."""
        for _ in range(min(self.share.count, shards)):
            self._new_slot()

    @property
    def workers(self) -> int:
        """How many are ready."""
        return len(self._idle) + sum(slot.ready for slot in self._slots.values())

    @property
    def idle(self) -> bool:
        """Whether a worker waits for a shard."""
        return bool(self._idle)

    @property
    def busy(self) -> int:
        """How many shards are being done."""
        return sum(slot.shard is not None for slot in self._slots.values())

    def give(self, shard: Shard, most: int | None = None) -> None:
        """Give a shard to a worker that waits; ``most``: only a sample of so many items, of which nothing is kept."""
        slot = self._idle.pop(0)
        slot.shard = shard
        value = shard.to_json()
        reference = slot.actor.run.remote(value) if most is None else slot.actor.sample.remote(value, most)
        self._slots[reference] = slot

    def wait(self, seconds: float) -> list[Event]:
        """What happened within so many seconds; returns as soon as something did.

        Raises `TellapartError` where workers cannot start, or are of another version.
        """
        if not self._slots:
            return []
        ready, _ = self.ray.wait(list(self._slots), num_returns=1, timeout=seconds)
        events = [self._happened(reference) for reference in ready]
        return [event for event in events if event is not None]

    def stop(self) -> None:
        """End all workers."""
        for slot in [*self._slots.values(), *self._idle]:
            self.ray.kill(slot.actor)
        self._slots.clear()
        self._idle.clear()

    def _new_slot(self) -> None:
        remote = self.ray.remote(
            num_cpus=self.share.cpus, num_gpus=self.share.gpus, max_restarts=0, max_task_retries=0
        )(Worker)
        slot = Slot(remote.remote(self.job.path, self.job.work, self.job.settings, os.getcwd()))  # noqa: PTH109
        self._slots[slot.actor.start.remote()] = slot

    def _happened(self, reference: Any) -> Event | None:
        slot = self._slots.pop(reference)
        try:
            reply: Reply = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return self._died(slot, error)
        if slot.shard is None:
            self._started(slot, reply)
            return None
        shard, slot.shard = slot.shard, None
        self._deaths = 0
        self._idle.append(slot)
        if reply.get("traceback"):
            detail(reply["traceback"])
        return Event(shard, reply, reply.get("error", ""))

    def _started(self, slot: Slot, reply: Reply) -> None:
        if "error" in reply:
            if reply["traceback"]:
                detail(reply["traceback"])
                raise TellapartError(f"a worker cannot start: {reply['error']}")
            raise (UsageError if reply["status"] == UsageError.exit_code else TellapartError)(reply["error"])
        if reply["version"] != __version__:
            raise TellapartError(
                f"the worker on {reply['host']} has tellapart {reply['version']}, and this is {__version__}; install "
                "the same everywhere"
            )
        self.job.keep_models(reply["models"])
        slot.ready, slot.node = True, reply.get("node", "")
        self._idle.append(slot)

    def _died(self, slot: Slot, error: Exception) -> Event | None:
        """Another worker takes its place."""
        reason = _reason(error)
        gone = slot.node not in alive_nodes(self.ray) if slot.node else "node" in reason
        if not gone:
            self._deaths += 1
        with_shard = slot.shard is not None
        if not with_shard and self._deaths >= DEATHS_AT_START * self.share.count:
            raise TellapartError(f"workers die as they start: {reason}")
        self.ray.kill(slot.actor)  # where it only was out of reach
        self._new_slot()
        return Event(slot.shard, None, reason, gone) if slot.shard is not None else None


def _reason(error: Exception) -> str:
    """Why a worker died, in one line. Ray knows of its own memory monitor, and of nodes that went; not of signals."""
    text = " ".join(str(error).split())
    if type(error).__name__ == "OutOfMemoryError" or "running low on memory" in text:
        return "the machine was out of memory, and Ray ended the worker"
    if "node" in text and "died" in text and "worker process has died" not in text:
        return "the worker died with its node"
    if "worker process has died" in text or "Worker exit" in text:
        return "the worker died (a crash such as SIGSEGV, or SIGKILL where memory is short)"
    return f"the worker died ({type(error).__name__}: {text})"
