"""``tellapart eval --metrics list``: every metric with its other names, its meaning, and what it needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tellapart.evaluation.metric_names import ALIASES, GROUPS
from tellapart.evaluation.registry import METRICS, NEEDS
from tellapart.report.words import describe

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Listed:
    """One metric: its key, what else it is called (alone or among others), its meaning, what it is computed from."""

    name: str
    also: tuple[str, ...]
    meaning: str
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"name", "also", "meaning", "needs"}``."""
        return asdict(self)


def listed() -> list[Listed]:
    """All metrics, in the order of the table."""
    return [
        Listed(
            name,
            (
                *(alias for alias, key in ALIASES.items() if key == name),
                *(group for group, pattern in GROUPS.items() if re.fullmatch(pattern, name)),
            ),
            describe(name).explain,
            tuple(NEEDS[need][1].partition(";")[0] for need in metric.needs) or ("captions",),
        )
        for name, metric in METRICS.items()
    ]


def table(found: Sequence[Listed]) -> Table:
    """The list for people."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, title="metrics; with --bags FILE also recall and mean rank in its sets")
    for column in ("metric", "also", "what it says", "needs"):
        shown.add_column(column, overflow="fold")
    for one in found:
        shown.add_row(one.name, ", ".join(one.also), one.meaning, ", ".join(one.needs))
    return shown
