"""Estimates a job's running time, disk space and cost by processing a sample of its items on one worker."""

from __future__ import annotations

import time
from typing import Any

from tellapart.errors import TellapartError
from tellapart.jobs.cluster import connected
from tellapart.jobs.job import Job
from tellapart.jobs.pool import Pool, Todo
from tellapart.jobs.worker_share import Share, Workers
from tellapart.utils.progress import clock

SAMPLE_SHARDS, SAMPLE_ITEMS = 8, 256  # number of evenly spaced shards to sample, and total number of items
COPIES = 2  # the result is stored twice, once per shard and once merged


def estimate(job: Job, workers: Workers, price: float | None) -> list[str]:
    """Times a few hundred items from evenly spaced shards on one worker, and returns the estimate as lines of text.
    Does not write a result.

    ``price``: the price of a worker-hour, or None to estimate no cost.
    """
    numbers = {place * job.shards // SAMPLE_SHARDS for place in range(SAMPLE_SHARDS)}
    chosen = [shard for shard in job.manifest() if shard.number in numbers]
    replies: list[dict[str, Any]] = []
    with connected(workers) as (ray, share):
        started = time.monotonic()
        # Runs the first shard twice. The first run counts as startup, because a process's first batch is slower.
        todo = Todo(iter([chosen[0], *chosen]), set())
        pool = Pool(ray, job, Share(1, share.cpus, share.gpus))
        for event in filter(None, pool.events(todo, 1, sample=max(1, SAMPLE_ITEMS // len(chosen)))):
            if event.summary is None:
                raise TellapartError(f"{event.shard.name}: {event.reason}")
            if not replies:
                load = time.monotonic() - started - event.summary["seconds"]
            replies.append(event.summary)
    done, seconds, size, whole = (
        sum(summary[name] for summary in replies[1:]) for name in ("items", "seconds", "bytes", "whole")
    )
    if not done:
        raise TellapartError(f"the {len(chosen)} sampled shards contain no items, so there is nothing to time")
    items = job.items
    if items is None:
        items = round(job.size * whole / max(1, sum(shard.size for shard in chosen)))
    count = min(share.count, job.shards)
    hours = (items * seconds / done + count * load) / 3600
    lines = [
        f"{job.shards:,} shards, {'about ' if job.items is None else ''}{items:,} items",
        f"sample of {done:,} items: {1000 * seconds / done:.1f} ms per item, {load:.1f} s to start a worker",
        f"with {count:,} {'worker' if count == 1 else 'workers'}: {clock(hours * 3600 / count)} "
        f"({hours:.2f} worker-hours)",
        f"disk: {COPIES * size / done * items / 1e6:,.1f} MB (shards and the merged result)",
    ]
    return lines if price is None else [*lines, f"cost: {hours * price:,.2f} at {price:g} per worker-hour"]
