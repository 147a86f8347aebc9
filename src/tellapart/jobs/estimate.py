"""Estimates a job's running time, disk space and cost by processing a sample of its items on one worker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tellapart.errors import TellapartError
from tellapart.jobs.cluster import connected
from tellapart.jobs.job import Job
from tellapart.jobs.pool import Pool, Todo
from tellapart.jobs.shard import Shard
from tellapart.jobs.worker_share import Share, Workers
from tellapart.utils.progress import clock

SAMPLE_SHARDS, SAMPLE_ITEMS = 8, 256  # number of evenly spaced shards to sample, and total number of items
COPIES = 2  # the result is stored twice, once per shard and once merged


@dataclass(frozen=True)
class JobEstimate:
    """The estimate for a job. ``items`` is exact if all shards have counts (``counted``). Seconds are per worker."""

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
        """The total number of hours that all workers run."""
        return (self.items * self.seconds_an_item + self.workers * self.seconds_to_load) / 3600

    @property
    def cost(self) -> float | None:
        """The cost in the currency of the price, or None if no price is given."""
        return None if self.price is None else self.worker_hours * self.price

    def lines(self) -> list[str]:
        """Formats the estimate as lines of text."""
        seconds = self.worker_hours * 3600 / self.workers
        many = "worker" if self.workers == 1 else "workers"
        lines = [
            f"{self.shards:,} shards, {'' if self.counted else 'about '}{self.items:,} items",
            (
                f"sample of {self.sampled:,} items: {1000 * self.seconds_an_item:.1f} ms per item, "
                f"{self.seconds_to_load:.1f} s to start a worker"
            ),
            f"with {self.workers:,} {many}: {clock(seconds)} ({self.worker_hours:.2f} worker-hours)",
            f"disk: {COPIES * self.bytes_an_item * self.items / 1e6:,.1f} MB (shards and the merged result)",
        ]
        return lines if self.cost is None else [*lines, f"cost: {self.cost:,.2f} at {self.price:g} per worker-hour"]


def estimate(job: Job, workers: Workers, price: float | None) -> JobEstimate:
    """Times a few hundred items from evenly spaced shards on one worker. Does not write a result."""
    chosen = sample_shards(job)
    each = max(1, SAMPLE_ITEMS // len(chosen))
    replies: list[dict[str, Any]] = []
    with connected(workers) as (ray, share):
        started = time.monotonic()
        # Runs the first shard twice. The first run counts as startup, because a process's first batch is slower.
        todo = Todo(iter([chosen[0], *chosen]), set())
        for event in Pool(ray, job, Share(1, share.cpus, share.gpus)).events(todo, 1, sample=each):
            if event is None:
                continue
            if event.summary is None:
                raise TellapartError(f"{event.shard.name}: {event.reason}")
            if not replies:
                load = time.monotonic() - started - event.summary["seconds"]
            replies.append(event.summary)
    summaries = replies[1:]
    done = sum(summary["items"] for summary in summaries)
    if not done:
        raise TellapartError(f"the {len(chosen)} sampled shards contain no items, so there is nothing to time")
    items = job.items
    if items is None:
        whole = sum(summary["whole"] for summary in summaries)
        items = round(job.size * whole / max(1, sum(shard.size for shard in chosen)))
    return JobEstimate(
        job.shards, items, job.items is not None, min(share.count, job.shards),
        sum(summary["seconds"] for summary in summaries) / done, load,
        sum(summary["bytes"] for summary in summaries) / done, done, price,
    )  # fmt: skip


def sample_shards(job: Job) -> list[Shard]:
    """Returns at most `SAMPLE_SHARDS` evenly spaced shards."""
    chosen = {place * job.shards // SAMPLE_SHARDS for place in range(SAMPLE_SHARDS)}
    return [shard for shard in job.manifest() if shard.number in chosen]
