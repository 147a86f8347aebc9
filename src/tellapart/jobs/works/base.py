"""The interface of a kind of work, and what its result says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tellapart.data import Dataset

MOST_NAMED = 100  # pictures that could not be read, named for each shard


@dataclass
class Done:
    """The result of a shard: items seen and written, those left out by (name, reason), and further counts."""

    items: int
    written: int
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_count: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, written: int, **more: Any) -> Done:
        """Returns the counts of a shard whose missing and unreadable pictures are listed in it."""
        lists = (dataset.missing, dataset.unreadable)
        entries = [entry for skipped in lists for entry in skipped][:MOST_NAMED]
        return cls(len(dataset) + len(dataset.missing), written, entries, sum(map(len, lists)), more)


class Work(Protocol):
    """Makes the result of a shard."""

    def models(self) -> dict[str, Any]:
        """Returns what only the loaded models know of themselves: the same in all workers of a job."""
        ...

    def run(self, dataset: Dataset, out: Path) -> Done:
        """Writes the result for these items to the file ``out``. Its bytes depend on the items and settings alone.

        Beside it may lie a list of the pictures, see `rows_file`.
        """
        ...
