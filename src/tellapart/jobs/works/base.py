"""The interface of a kind of work, and the result for a shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tellapart.data import Dataset

MOST_NAMED = 100  # maximum number of unreadable pictures listed per shard


@dataclass
class Done:
    """A shard's result: items seen and written, items left out as (name, reason), and other counts."""

    items: int
    written: int
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_count: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, written: int, **more: Any) -> Done:
        """Returns a shard's counts, with its missing and unreadable pictures."""
        lists = (dataset.missing, dataset.unreadable)
        entries = [entry for skipped in lists for entry in skipped][:MOST_NAMED]
        return cls(len(dataset) + len(dataset.missing), written, entries, sum(map(len, lists)), more)


class Work(Protocol):
    """A kind of work: computes the results of shards."""

    def models(self) -> dict[str, Any]:
        """Returns facts that are known only once the models are loaded; they must be equal in all workers of a job."""
        ...

    def run(self, dataset: Dataset, out: Path) -> Done:
        """Writes the result for these items to the file ``out``. Its bytes depend only on the items and settings.

        Can write a list of the pictures next to it (see `rows_file`).
        """
        ...
