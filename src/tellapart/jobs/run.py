"""The driver: gives shards to workers until all are done or set aside. It reads no item and writes no result.

The cluster is Ray on this machine for as long as a job runs, or one that is there (``ray start --head``). Ray sends
nothing anywhere: its usage statistics are off. Its object store is small, for no data of a job pass through it: workers
read their shards and write their results themselves. Workers are Ray actors: made, given shards, and replaced where one
dies.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart import __version__
from tellapart.bags.large import LargeSearch, Spread
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.jobs.job import Job, Pulse, clock, failed_line
from tellapart.jobs.manifest import Shard
from tellapart.jobs.works import Reply, Worker
from tellapart.utils.messages import Progress, detail, say

ATTEMPTS = 3  # of a shard, before it is set aside
LOSSES = 10  # and deaths of the machine that it was on
POLL_SECONDS = 1.0


@dataclass
class Outcome:
    """The result of a run of a job: shards that were done before, and now; ``seconds`` of its own."""

    before: int = 0
    now: int = 0
    items: int = 0
    seconds: float = 0.0
    failed: int = 0


@dataclass
class Todo:
    """The shards that are left: those of the manifest that are not done, and those to be tried again."""

    manifest: Iterator[Shard]
    done: set[int]
    again: deque[Shard] = field(default_factory=deque)

    def take(self) -> Shard | None:
        """Returns the next one; first those that no one has tried."""
        while (shard := next(self.manifest, None)) is not None:
            if shard.number not in self.done:
                return shard
        return self.again.popleft() if self.again else None


def run_job(job: Job, wanted: Workers, label: str = "working") -> Outcome:
    """Does what is left of a job. Set-aside shards are tried again, and are listed in the folder where they fail again.

    Ctrl-C, or the death of this process, leaves what is done; the same job goes on. Raises `TellapartError` where no
    worker can start.
    """
    done = job.done()
    outcome = Outcome(before=len(done))
    if len(done) == job.shards:
        return outcome
    job.forget_failed()
    pulse = Pulse(job, done=len(done))
    pulse.write(always=True)
    try:
        with connected(wanted) as (ray, share):
            pool = Pool(ray, job, share)
            with Progress(job.shards, f"{label}, shards", done=len(done)) as shown:
                try:
                    pool.start(job.shards - len(done))
                    _drive(job, pool, Todo(job.manifest(), done), outcome, pulse, shown)
                finally:
                    pool.stop()
        pulse.state = "failed" if outcome.failed else "finished"
    except BaseException:
        pulse.state = "stopped"
        raise
    finally:
        pulse.workers = 0
        outcome.seconds = pulse.seconds
        pulse.write(always=True)
    return outcome


def _drive(job: Job, pool: Pool, todo: Todo, outcome: Outcome, pulse: Pulse, shown: Progress) -> None:
    attempts: Counter[int] = Counter()
    losses: Counter[int] = Counter()
    while True:
        while pool.idle and (shard := todo.take()) is not None:
            pool.give(shard)
        if pool.idle and not pool.busy:  # nothing is left to be given, or to come back
            return
        for event in pool.wait(POLL_SECONDS):
            if event.reply is not None and "error" not in event.reply:
                outcome.now += 1
                outcome.items += event.reply["summary"]["items"]
                pulse.done, pulse.new, pulse.items = outcome.before + outcome.now, outcome.now, outcome.items
                shown.advance()
            elif not _failed(job, event, attempts, losses, todo, pulse):
                outcome.failed += 1
                shown.advance()
        pulse.workers = pool.workers
        rate = outcome.items / pulse.seconds if pulse.seconds else 0.0
        aside = f", {outcome.failed} set aside" if outcome.failed else ""
        shown.note = f"{pool.workers} workers, {rate:,.1f} items/s{aside}"
        shown.advance(0)
        pulse.write()


def _failed(job: Job, event: Event, attempts: Counter[int], losses: Counter[int], todo: Todo, pulse: Pulse) -> bool:
    """Returns whether a shard that failed is tried again; else it is set aside."""
    number = event.shard.number
    (losses if event.blameless else attempts)[number] += 1
    final = event.reply is not None and event.reply["final"]
    if attempts[number] < ATTEMPTS and losses[number] < LOSSES and not final:
        pulse.retries += 1
        todo.again.append(event.shard)
        return True
    job.set_aside(event.shard, event.reason, attempts[number] + losses[number])
    return False


def refuse_failed(job: Job) -> None:
    """Prints the shards that were set aside, and raises a `TellapartError` where there are any."""
    failed = job.failed()
    for one in failed:
        say(failed_line(one))
    if failed:
        raise TellapartError(
            f"{len(failed):,} of {job.shards:,} shards were set aside; the same command tries them again, and "
            f"'tellapart job merge {job.path} --without-failed' joins the others"
        )


STORE_BYTES = 80 << 20  # Ray's own lower bound is 75 MB


@dataclass(frozen=True)
class Workers:
    """The request for workers. ``count`` None: as many as the cluster has room for; ``address`` None: this machine.

    ``cpus`` and ``gpus`` of each worker: None chooses (see `share`); ``gpus`` may be a fraction.
    """

    count: int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None


@dataclass(frozen=True)
class Share:
    """The resources of each of ``count`` workers."""

    count: int
    cpus: float
    gpus: float


def load_ray() -> Any:
    """Ray, or a `MissingExtra` that says what to install."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "--workers") from None
    return ray


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Takes back the handler that Ray replaces by its own, which prints a stack of C++."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:  # of Ray's, while it starts
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def connected(wanted: Workers) -> Iterator[tuple[Any, Share]]:
    """Ray, connected, and what each worker gets. Ray that was started here ends with the block.

    Raises `UsageError` where there is no cluster at the address.
    """
    ray = load_ray()
    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "CRITICAL"}
    if wanted.address is None:
        cores = os.cpu_count() or 1
        count = wanted.count or 1
        cpus = wanted.cpus if wanted.cpus is not None else max(1, cores // count)
        settings |= {"num_cpus": max(cores, math.ceil(count * cpus)), "object_store_memory": STORE_BYTES}
        settings["address"] = "local"
    else:
        del settings["include_dashboard"]
    try:
        if wanted.address is not None:
            settings["address"] = wanted.address
            if wanted.address == "auto":
                _check_joined()
        with _own_sigterm():
            ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if wanted.address is None else f"at '{wanted.address}'"
        first = " ".join(str(error).split())
        token = "" if wanted.address in (None, "auto") else ", where it asks for a token export RAY_AUTH_MODE=token"
        raise UsageError(
            f"no Ray cluster {where} ({first}); start one with: ray start --head{token}, or leave out --ray"
        ) from None
    try:
        yield ray, share(wanted, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    finally:
        ray.shutdown()


def _check_joined() -> None:
    """Raises `ConnectionError` where RAY_ADDRESS is not set and this machine has joined no cluster by ``ray start``.

    Ray's own "auto" would then take what another command has started for itself, and that ends with it.
    """
    from ray._private.services import find_bootstrap_address

    if not os.environ.get("RAY_ADDRESS") and not find_bootstrap_address(None):
        raise ConnectionError("this machine has joined none, and RAY_ADDRESS is not set")


def share(wanted: Workers, nodes: Sequence[Mapping[str, float]]) -> Share:
    """Returns what each worker gets of the resources of a cluster's nodes. A worker is on one node.

    GPUs: what was asked for, else one each, or on this machine an equal part of those it has; 0 where there are none.
    CPUs: one, or on this machine an equal part of its cores. Raises `UsageError` for more than the cluster has.
    """
    gpus = sum(node.get("GPU", 0.0) for node in nodes)
    if wanted.gpus and not gpus:
        raise UsageError(f"--gpus-per-worker {wanted.gpus:g}: this cluster has no GPU; leave it out")
    if wanted.gpus and wanted.gpus > 1 and wanted.gpus % 1:
        raise UsageError(f"--gpus-per-worker {wanted.gpus:g}: expected a part of one GPU, or a whole number of them")
    count = wanted.count or 1
    if wanted.address is None:
        cpus = wanted.cpus if wanted.cpus is not None else max(1, (os.cpu_count() or 1) // count)
        own = 1 / math.ceil(count / gpus) if gpus else 0.0
    else:
        cpus, own = wanted.cpus if wanted.cpus is not None else 1.0, min(1.0, gpus)
    each = wanted.gpus if wanted.gpus is not None else own
    room = sum(_room(node, cpus, each) for node in nodes)
    if room < 1:
        found = "; ".join(sorted({f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes}))
        raise UsageError(
            f"no machine of the cluster has {cpus:g} CPUs and {each:g} GPUs for a worker (there are: {found}); ask for "
            "less with --cpus-per-worker and --gpus-per-worker"
        )
    if wanted.address is not None and wanted.count is None:
        count = int(min(room, 10_000))
    return Share(count, cpus, each)


def _room(node: Mapping[str, float], cpus: float, gpus: float) -> float:
    """Returns how many workers of so many CPUs and GPUs a node has room for; parts of a worker's GPU are of one GPU."""
    by_cpu = node.get("CPU", 0.0) // cpus if cpus else math.inf
    there = node.get("GPU", 0.0)
    return min(by_cpu, (there // gpus if gpus >= 1 else there * (1 // gpus)) if gpus else math.inf)


def alive_nodes(ray: Any) -> set[str]:
    """Returns the ids of the nodes that are there."""
    try:
        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    except Exception as error:
        raise TellapartError(f"the cluster is gone ({type(error).__name__}); the same command goes on") from None


DEATHS_AT_START = 3  # for each worker, with no shard finished in between: the job ends


@dataclass
class WorkerSlot:
    """A place for a worker. ``shard`` is what it does now; ``node`` where it is, once it is there."""

    actor: Any
    node: str = ""
    shard: Shard | None = None
    ready: bool = False


@dataclass(frozen=True)
class Event:
    """An event: a reply to a shard, or the worker's death on the way (``reply`` None).

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
    _slots: dict[Any, WorkerSlot] = field(default_factory=dict)  # by what is waited for
    _idle: list[WorkerSlot] = field(default_factory=list)
    _deaths: int = 0

    def start(self, shards: int) -> None:
        """Asks for the workers, no more than there are shards to do; they come as the cluster has room."""
        for _ in range(min(self.share.count, shards)):
            self._new_slot()

    @property
    def workers(self) -> int:
        """The number that is ready."""
        return len(self._idle) + sum(slot.ready for slot in self._slots.values())

    @property
    def idle(self) -> bool:
        """True where a worker waits for a shard."""
        return bool(self._idle)

    @property
    def busy(self) -> int:
        """The number of shards that are being done."""
        return sum(slot.shard is not None for slot in self._slots.values())

    def give(self, shard: Shard, most: int | None = None) -> None:
        """Gives a shard to a worker that waits; ``most``: only a sample of so many items, of which nothing is kept."""
        slot = self._idle.pop(0)
        slot.shard = shard
        value = shard.to_json()
        reference = slot.actor.run.remote(value) if most is None else slot.actor.sample.remote(value, most)
        self._slots[reference] = slot

    def wait(self, seconds: float) -> list[Event]:
        """Returns what happened within so many seconds; returns as soon as something did.

        Raises `TellapartError` where workers cannot start, or are of another version.
        """
        if not self._slots:
            return []
        ready, _ = self.ray.wait(list(self._slots), num_returns=1, timeout=seconds)
        events = [self._happened(reference) for reference in ready]
        return [event for event in events if event is not None]

    def stop(self) -> None:
        """Ends all workers."""
        for slot in [*self._slots.values(), *self._idle]:
            self.ray.kill(slot.actor)
        self._slots.clear()
        self._idle.clear()

    def _new_slot(self) -> None:
        remote = self.ray.remote(
            num_cpus=self.share.cpus, num_gpus=self.share.gpus, max_restarts=0, max_task_retries=0
        )(Worker)
        slot = WorkerSlot(remote.remote(self.job.path, self.job.work, self.job.settings, os.getcwd()))  # noqa: PTH109
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

    def _started(self, slot: WorkerSlot, reply: Reply) -> None:
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

    def _died(self, slot: WorkerSlot, error: Exception) -> Event | None:
        """Puts another worker in its place."""
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
    """Returns why a worker died, in one line. Ray knows of its own memory monitor, and of nodes that went; not of
    signals.
    """
    text = " ".join(str(error).split())
    if type(error).__name__ == "OutOfMemoryError" or "running low on memory" in text:
        return "the machine was out of memory, and Ray ended the worker"
    if "node" in text and "died" in text and "worker process has died" not in text:
        return "the worker died with its node"
    if "worker process has died" in text or "Worker exit" in text:
        return "the worker died (a crash such as SIGSEGV, or SIGKILL where memory is short)"
    return f"the worker died ({type(error).__name__}: {text})"


SAMPLE_SHARDS, SAMPLE_ITEMS = 8, 256  # shards over the whole of the data, and items of all of them together
COPIES = 2  # of the result: in shards, and joined


@dataclass(frozen=True)
class JobEstimate:
    """``items`` is exact where every shard says how many it has (``counted``). Seconds are of one worker."""

    shards: int
    items: int
    counted: bool
    workers: int
    seconds_an_item: float
    seconds_to_load: float
    bytes_an_item: float
    sampled: int
    price: float | None

    @property
    def worker_hours(self) -> float:
        """Of all workers together."""
        return (self.items * self.seconds_an_item + self.workers * self.seconds_to_load) / 3600

    @property
    def cost(self) -> float | None:
        """In the unit of the price; None without one."""
        return None if self.price is None else self.worker_hours * self.price

    def lines(self) -> list[str]:
        """For a person."""
        seconds = self.worker_hours * 3600 / self.workers
        many = "worker" if self.workers == 1 else "workers"
        lines = [
            f"{self.shards:,} shards, {'' if self.counted else 'about '}{self.items:,} items",
            f"sample of {self.sampled:,} items: {1000 * self.seconds_an_item:.1f} ms an item, "
            f"{self.seconds_to_load:.1f} s to load a worker",
            f"with {self.workers:,} {many}: {clock(seconds)} ({self.worker_hours:.2f} worker-hours)",
            f"disk: {COPIES * self.bytes_an_item * self.items / 1e6:,.1f} MB (shards and the joined result)",
        ]
        return lines if self.cost is None else [*lines, f"cost: {self.cost:,.2f} at {self.price:g} a worker-hour"]


def estimate(job: Job, wanted: Workers, price: float | None) -> JobEstimate:
    """Times a few hundred items, from shards over all of the data, on one worker of the cluster. Nothing is kept."""
    chosen = spread(job)
    each = max(1, SAMPLE_ITEMS // len(chosen))
    with connected(wanted) as (ray, share):
        pool = Pool(ray, job, Share(1, share.cpus, share.gpus))
        started = time.monotonic()
        pool.start(1)
        try:
            while not pool.idle:
                pool.wait(1.0)
            load = time.monotonic() - started
            _sampled(pool, chosen[0], each)  # the first batch of a process is slower
            replies = [_sampled(pool, shard, each) for shard in chosen]
        finally:
            pool.stop()
    summaries = [reply["summary"] for reply in replies]
    done = sum(summary["items"] for summary in summaries)
    if not done:
        raise TellapartError(f"no items in the {len(chosen)} shards that were looked at; there is nothing to time")
    items = job.items
    if items is None:
        items = round(job.size * sum(reply["whole"] for reply in replies) / max(1, sum(shard.size for shard in chosen)))
    return JobEstimate(
        job.shards, items, job.items is not None, min(share.count, job.shards),
        sum(summary["seconds"] for summary in summaries) / done, load,
        sum(summary["bytes"] for summary in summaries) / done, done, price,
    )  # fmt: skip


def spread(job: Job) -> list[Shard]:
    """Returns at most `SAMPLE_SHARDS` shards, at equal distances."""
    chosen = {place * job.shards // SAMPLE_SHARDS for place in range(SAMPLE_SHARDS)}
    return [shard for shard in job.manifest() if shard.number in chosen]


def _sampled(pool: Pool, shard: Shard, most: int) -> dict[str, Any]:
    """Returns the reply of a worker to a sample. Raises `TellapartError` with its reason where it failed."""
    pool.give(shard, most)
    while True:
        for event in pool.wait(1.0):
            if event.reply is None or "error" in event.reply:
                raise TellapartError(f"{shard.name}: {event.reason}")
            return event.reply


RETRIES = 5  # of a task whose worker or node died


@contextlib.contextmanager
def spread_by_ray(wanted: Workers) -> Iterator[Spread]:
    """Spreads a stage's tasks over all workers. They have to see the folders of features and of the result."""
    with connected(wanted) as (ray, share):
        perform = ray.remote(num_cpus=share.cpus, max_retries=RETRIES)(_perform)

        def spread(search: LargeSearch, name: str, numbers: Sequence[int]) -> Iterator[None]:
            pending: list[Any] = []
            shared = ray.put(search)  # with what it has read, once for all tasks of the stage
            for number in numbers:
                if len(pending) >= share.count:
                    pending = _one_done(ray, pending)
                    yield
                pending.append(perform.remote(shared, name, number))
            while pending:
                pending = _one_done(ray, pending)
                yield

        yield spread


def _perform(search: LargeSearch, name: str, number: int) -> str:
    """In a worker. Returns the error of a user's, in a line."""
    try:
        search.perform(name, number)
    except TellapartError as error:
        return str(error) or type(error).__name__
    return ""


def _one_done(ray: Any, pending: list[Any]) -> list[Any]:
    """Returns those that are left once one is done. Raises `TellapartError` where it failed."""
    found: tuple[list[Any], list[Any]] = ray.wait(pending, num_returns=1)
    (done,), rest = found
    try:
        wrong = ray.get(done)
    except ray.exceptions.RayError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise TellapartError(
            f"a task failed ({lines[-1].strip() if lines else type(error).__name__}); what is whole is kept, and the "
            "same command goes on"
        ) from None
    if wrong:
        raise TellapartError(wrong)
    return rest
