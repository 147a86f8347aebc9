"""The interface of a kind of work: models, and the result for a shard's items."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tellapart.data import Dataset

MOST_NAMED = 100  # maximum number of unreadable pictures to list per shard


@dataclass
class Done:
    """A shard's result: how many items were seen and written, which were left out (as name and reason), and other
    counts.
    """

    items: int
    written: int
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_count: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, written: int, **more: Any) -> Done:
        """Returns a shard's counts, including its missing and unreadable pictures."""
        lists = (dataset.missing, dataset.unreadable)
        entries = [entry for skipped in lists for entry in skipped][:MOST_NAMED]
        return cls(len(dataset) + len(dataset.missing), written, entries, sum(map(len, lists)), more)


class Work(Protocol):
    """A kind of job, which computes the results of shards."""

    def models(self) -> dict[str, Any]:
        """Returns facts that are known only after the models have been loaded. They must be the same for all of a job's
        workers.
        """
        ...

    def run(self, dataset: Dataset, out: Path) -> Done:
        """Writes the result for these items to the file ``out``. The file's bytes depend only on the items and the
        settings.

        May also write a list of the pictures next to the file (see `rows_file`).
        """
        ...


def rows_file(out: Path) -> Path:
    """Returns the path of the file with a shard's captions in the log's format, which is next to the shard's result."""
    return out.with_name(out.name + ".pictures.jsonl")
