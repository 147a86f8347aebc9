"""What is done with a shard. A worker makes a `Work` once, with its models, and hands it one shard after the other."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tellapart.data import Dataset
from tellapart.errors import TellapartError, UsageError

if TYPE_CHECKING:
    from tellapart.jobs.job import Job


@dataclass
class Done:
    """What became of a shard: items seen and written, those left out by (name, reason), and further counts."""

    items: int
    written: int
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_count: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, written: int, **more: Any) -> Done:
        """Of a data set whose unreadable pictures are listed in it."""
        lists = (dataset.missing, dataset.unreadable)
        entries = [entry for found in lists for entry in found][:MOST_NAMED]
        return cls(len(dataset), written, entries, sum(map(len, lists)), more)


class Work(Protocol):
    """Makes the result of a shard."""

    def models(self) -> dict[str, Any]:
        """What only the loaded models know of themselves: the same in all workers of a job."""
        ...

    def run(self, dataset: Dataset, out: Path) -> Done:
        """Write the result for these items to the file ``out``. Its bytes depend on the items and settings alone."""
        ...


MOST_NAMED = 100  # pictures that could not be read, named for each shard
# By name: what is done with a shard, and what joins the results of all shards.
WORKS = {
    "caption": ("tellapart.jobs.captions:Captions", "tellapart.jobs.merge:merge_lines"),
    "encode": ("tellapart.jobs.features:Features", "tellapart.jobs.features:write_features"),
    "boost": ("tellapart.jobs.boosts:Boosts", "tellapart.jobs.boosts:merge_boosted"),
}


def make_work(name: str, settings: Mapping[str, Any]) -> Work:
    """The work of a name, which is `WORKS`' alone: a job's folder cannot name other code."""
    make: Callable[..., Work] = _named(name, 0).open
    return make(**settings)


def merge_job(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Join the results of a job, in the way of its work. Returns how many items there are.

    Raises `TellapartError` where they are not as many as the workers wrote.
    """
    joined: int = _named(job.work, 1)(job, out, without_failed=without_failed)
    if joined != (written := sum(job.summary(number)["written"] for number in job.done() if number < job.shards)):
        raise TellapartError(
            f"{out}: {joined:,} items, where the summaries of {job.path} count {written:,}; do it anew"
        )
    return joined


def _named(name: str, place: int) -> Any:
    """What `WORKS` has of a work, from its module, which is loaded now: the driver loads no model."""
    if name not in WORKS:
        raise UsageError(f"a job of '{name}' is not known here; is it of a newer tellapart?")
    module, _, inside = WORKS[name][place].partition(":")
    return getattr(importlib.import_module(module), inside)
