"""Lists all metrics, for ``tellapart eval --metrics list`` and the table in ``docs/reference/metrics.md``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import rich
import rich.table

from tellapart.evaluation.needs import NEEDS
from tellapart.metrics.metric import Metric
from tellapart.metrics.registry import METRICS, in_order
from tellapart.utils.messages import say
from tellapart.utils.tables import table_of

HEADS = ("metric", "also", "label", "meaning", "better", "needs")


@dataclass(frozen=True)
class Listed:
    """An entry in the list: the metric's key, its other names and families, its meaning, and its requirements."""

    name: str
    also: tuple[str, ...]
    label: str
    meaning: str
    direction: str | None
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"name", "also", "label", "meaning", "direction", "needs"}``."""
        return asdict(self)

    def cells(self) -> list[str]:
        """Returns a row with the columns in `HEADS`."""
        return [
            self.name,
            ", ".join(self.also),
            self.label,
            self.meaning,
            self.direction or "–",
            ", ".join(self.needs),
        ]


def list_metrics() -> list[Listed]:
    """Returns all metrics by group, including those from installed packages. Reports broken metrics on stderr."""
    return [listed(metric) for metric in in_order(METRICS.entries(broken=say)).values()]


def listed(metric: Metric) -> Listed:
    """Returns a metric's entry in the list."""
    info = metric.info()
    needs = tuple(NEEDS[need].label for need in metric.needs) or ("captions",)
    return Listed(metric.name, (*metric.aliases, *metric.families), info.label, info.help, info.direction, needs)


def metric_table(metrics: Sequence[Listed]) -> rich.table.Table:
    """Formats the list for the terminal."""
    cells = [metric.cells() for metric in metrics]
    return table_of(HEADS, cells, "metrics; --bags FILE adds recall and mean rank in the file's sets")


def metric_markdown(metrics: Sequence[Listed]) -> str:
    """Formats the list as the table in ``docs/reference/metrics.md``."""
    rows = [HEADS, ("---",) * len(HEADS), *(metric.cells() for metric in metrics)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
