"""A table of all kinds of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.job import Job, recorded_results
from tellapart.jobs.works.base import Work
from tellapart.jobs.works.boost import Boosts, merge_boosted
from tellapart.jobs.works.captions import Captions
from tellapart.jobs.works.features import Features
from tellapart.jobs.works.joined_captions import merge_lines
from tellapart.jobs.works.joined_features import write_features

# Maps each name to the class of the work, and a function that merges the results of all shards.
WORKS: dict[str, tuple[Callable[..., Work], Callable[..., int]]] = {
    "caption": (Captions, merge_lines),
    "encode": (Features, write_features),
    "boost": (Boosts, merge_boosted),
}


def _work(name: str) -> tuple[Callable[..., Work], Callable[..., int]]:
    if name not in WORKS:
        raise UsageError(f"unknown kind of job '{name}'; was the job started with a newer version of tellapart?")
    return WORKS[name]


def make_work(name: str, settings: Mapping[str, Any]) -> Work:
    """Opens the work with this name. Only names in `WORKS` are allowed, so that a job's folder cannot run other
    code.
    """
    return _work(name)[0](**settings)


def merge_job(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Merges a job's results with the function for its kind of work. Returns the number of items.

    Raises `TellapartError` if this number differs from the number of items that the workers wrote.
    """
    with recorded_results(job.path):
        joined = _work(job.work)[1](job, out, without_failed=without_failed)
    if joined != (written := sum(job.summary(number)["written"] for number in job.done() if number < job.shards)):
        raise TellapartError(
            f"{out}: merged {joined:,} items, but the summaries in {job.path} add up to {written:,}; run the job again"
        )
    return joined
