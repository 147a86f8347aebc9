"""Lists all metrics, for ``tellapart eval --metrics list`` and the table in ``docs/reference/metrics.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import rich
import rich.table

from tellapart.evaluation.needs import NEEDS
from tellapart.metrics.registry import METRICS, in_order
from tellapart.utils.messages import say
from tellapart.utils.tables import table_of

HEADS = ("metric", "also", "label", "meaning", "better", "needs")


class Listed(NamedTuple):
    """An entry in the list: the metric's key, its other names and families, its meaning, and its requirements."""

    name: str
    also: tuple[str, ...]
    label: str
    meaning: str
    direction: str | None
    needs: tuple[str, ...]

    def cells(self) -> list[str]:
        """Returns a row with the columns in `HEADS`."""
        return [cell if isinstance(cell, str) else "–" if cell is None else ", ".join(cell) for cell in self]


def list_metrics() -> list[Listed]:
    """Returns all metrics by group, including those from installed packages. Reports broken metrics on stderr."""
    listed = []
    for metric in in_order(METRICS.entries(broken=say)).values():
        info, needs = metric.info(), tuple(NEEDS[need].label for need in metric.needs) or ("captions",)
        also = (*metric.aliases, *metric.families)
        listed.append(Listed(metric.name, also, info.label, info.help, info.direction, needs))
    return listed


def metric_table(metrics: Sequence[Listed]) -> rich.table.Table:
    """Formats the list for the terminal."""
    cells = [metric.cells() for metric in metrics]
    return table_of(HEADS, cells, "metrics; --bags FILE adds recall and mean rank in the file's sets")


def metric_markdown(metrics: Sequence[Listed]) -> str:
    """Formats the list as the table in ``docs/reference/metrics.md``."""
    rows = [HEADS, ("---",) * len(HEADS), *(metric.cells() for metric in metrics)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
