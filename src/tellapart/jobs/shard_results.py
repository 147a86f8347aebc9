"""Selects the shards to merge, and checks their result files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.job import Job
from tellapart.utils.progress import track

AGAIN = "run the job's command again"


def wanted_shards(job: Job, without_failed: bool) -> list[int]:
    """Returns the numbers of the shards to merge. Raises `UsageError` if some shards are not done."""
    done = {number for number in job.done() if number < job.shards}
    known = done | {one["shard"] for one in job.failed() if without_failed and one["shard"] < job.shards}
    if len(known) < job.shards:
        first = next(number for number in range(job.shards) if number not in known)
        raise UsageError(
            f"{job.path}: {job.shards - len(known):,} of {job.shards:,} shards are not done (first: {first}); {AGAIN}"
        )
    return sorted(done)


def results(job: Job, numbers: list[int], label: str) -> Iterator[tuple[int, Path]]:
    """Checks the shards' results, and yields (number, local path) for each. A path is valid until the next path is
    yielded.

    Raises `TellapartError` if a result is damaged.
    """
    for number in track(numbers, label=label):
        with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
            try:
                path = job.result(number, Path(scratch))
            except TellapartError as error:
                raise TellapartError(f"{error}; {AGAIN}") from None
            yield number, path
