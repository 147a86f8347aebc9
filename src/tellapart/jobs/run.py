"""The driver: gives shards to workers until all are done or set aside. It reads no item and writes no result."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tellapart.errors import TellapartError
from tellapart.jobs.cluster import Workers, connected
from tellapart.jobs.job import Job
from tellapart.jobs.manifest import Shard
from tellapart.jobs.pool import Event, Pool
from tellapart.jobs.status import Pulse, failed_line
from tellapart.progress import Progress
from tellapart.utils.messages import say

ATTEMPTS = 3  # of a shard, before it is set aside
LOSSES = 10  # and deaths of the machine that it was on
POLL_SECONDS = 1.0


@dataclass
class Outcome:
    """What a run of a job did: shards that were done before, and now; ``seconds`` of its own."""

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
        """The next one; first those that no one has tried."""
        while (shard := next(self.manifest, None)) is not None:
            if shard.number not in self.done:
                return shard
        return self.again.popleft() if self.again else None


def run_job(job: Job, wanted: Workers, label: str = "working") -> Outcome:
    """Do what is left of a job. Set-aside shards are tried again, and are listed in the folder where they fail again.

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
    """Whether a shard that failed is tried again; else it is set aside."""
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
    """Print the shards that were set aside, and raise a `TellapartError` where there are any."""
    failed = job.failed()
    for one in failed:
        say(failed_line(one))
    if failed:
        raise TellapartError(
            f"{len(failed):,} of {job.shards:,} shards were set aside; the same command tries them again, and "
            f"'tellapart job merge {job.path} --without-failed' joins the others"
        )
