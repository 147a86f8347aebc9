"""The list of all metrics: ``tellapart eval --metrics list``, and the table in ``docs/reference/metrics.md``."""

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
    """An entry of the list: key, other names (of the metric or its families), meaning, and requirements."""

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
        """Returns a row under `HEADS`."""
        return [
            self.name,
            ", ".join(self.also),
            self.label,
            self.meaning,
            self.direction or "–",
            ", ".join(self.needs),
        ]


def list_metrics() -> list[Listed]:
    """Returns all metrics by group, including those of installed packages; reports broken ones on stderr."""
    return [listed(metric) for metric in in_order(METRICS.entries(broken=say)).values()]


def listed(metric: Metric) -> Listed:
    """Returns the list entry of a metric."""
    info = metric.info()
    needs = tuple(NEEDS[need].label for need in metric.needs) or ("captions",)
    return Listed(metric.name, (*metric.aliases, *metric.families), info.label, info.help, info.direction, needs)


def metric_table(metrics: Sequence[Listed]) -> rich.table.Table:
    """Formats the list for the terminal."""
    cells = [metric.cells() for metric in metrics]
    return table_of(HEADS, cells, "metrics; --bags FILE adds recall and mean rank in its sets")


def metric_markdown(metrics: Sequence[Listed]) -> str:
    """Formats the list as the table in ``docs/reference/metrics.md``."""
    rows = [HEADS, ("---",) * len(HEADS), *(metric.cells() for metric in metrics)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
