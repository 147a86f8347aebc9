"""The driver assigns shards to workers until all shards are done or set aside. It reads no items and writes no
results.
"""

from __future__ import annotations

from collections import Counter

from tellapart.errors import TellapartError
from tellapart.jobs.cluster import connected
from tellapart.jobs.job import Job
from tellapart.jobs.pool import Event, Pool, Todo
from tellapart.jobs.shard import Shard
from tellapart.jobs.status import Pulse, failed_line
from tellapart.jobs.worker_share import Workers
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

MAX_ATTEMPTS = 3  # after this many failures, a shard is set aside
MAX_NODE_DEATHS = 10  # after this many nodes die while processing a shard, it is set aside


def run_job(job: Job, workers: Workers, label: str = "working") -> None:
    """Processes a job's remaining shards. Retries shards that were set aside, and records the shards that fail again.

    If this process is interrupted or dies, finished shards are kept, and repeating the call resumes the job.

    Raises:
        TellapartError: if no worker can start.
    """
    done = job.done()
    if len(done) == job.shards:
        return
    job.forget_failed()
    pulse = Pulse(job, done=len(done))
    pulse.write(always=True)
    try:
        with connected(workers) as (ray, share):
            pool = Pool(ray, job, share)
            with Progress(job.shards, f"{label}, shards", done=len(done)) as progress:
                _drive(job, pool, min(share.count, job.shards - len(done)), Todo(job.manifest(), done), pulse, progress)
        pulse.state = "failed" if pulse.failed else "finished"
    except BaseException:
        pulse.state = "stopped"
        raise
    finally:
        pulse.workers = 0
        pulse.write(always=True)


def _drive(job: Job, pool: Pool, count: int, todo: Todo, pulse: Pulse, progress: Progress) -> None:
    attempts = Attempts()
    for event in pool.events(todo, count):
        if event is not None and event.summary is not None:
            pulse.add(event.summary["items"])
            progress.advance()
        elif event is not None and attempts.again(event):
            pulse.retries += 1
            todo.again.append(event.shard)
        elif event is not None:
            job.set_aside(event.shard, event.reason, attempts.total(event.shard))
            pulse.failed += 1
            progress.advance()
        pulse.workers = pool.workers
        aside = f", {pulse.failed} failed" if pulse.failed else ""
        progress.note = f"{pool.workers} workers, {pulse.items_per_second:,.1f} items/s{aside}"
        progress.advance(0)
        pulse.write()


class Attempts:
    """Counts each shard's failures, separately for failures of the shard itself and for those caused by the death of a
    node.
    """

    def __init__(self) -> None:
        self._failures, self._node_deaths = Counter[int](), Counter[int]()

    def again(self, event: Event) -> bool:
        """Counts a failure and returns whether the shard should be retried."""
        number = event.shard.number
        (self._node_deaths if event.blameless else self._failures)[number] += 1
        few = self._failures[number] < MAX_ATTEMPTS and self._node_deaths[number] < MAX_NODE_DEATHS
        return few and not event.final

    def total(self, shard: Shard) -> int:
        """Returns how often a shard has been tried."""
        return self._failures[shard.number] + self._node_deaths[shard.number]


def refuse_failed(job: Job) -> None:
    """Prints the shards that were set aside, and raises `TellapartError` if any were."""
    failed = job.failed()
    for one in failed:
        say(failed_line(one))
    if failed:
        raise TellapartError(
            f"{len(failed):,} of {job.shards:,} shards failed; run the same command again to "
            f"retry them, or 'tellapart job merge {job.path} --without-failed' to merge the rest"
        )
