"""``tellapart eval --metrics list``: every metric with its other names, its meaning, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tellapart.evaluation.context import NEEDS
from tellapart.metrics.registry import METRICS, Metric, in_order
from tellapart.utils.messages import say
from tellapart.utils.registry import LazyModule

if TYPE_CHECKING:
    import rich
    import rich.table
    from rich import box
else:
    rich = LazyModule("rich", "table")
    box = LazyModule("rich.box")

HEADS = ("metric", "also", "label", "what it says", "better", "needs")


@dataclass(frozen=True)
class Listed:
    """One metric: its key, what else it is called (alone or among others), its meaning, what it is computed from."""

    name: str
    also: tuple[str, ...]
    label: str
    meaning: str
    direction: str | None
    needs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"name", "also", "label", "meaning", "direction", "needs"}``."""
        return asdict(self)

    def cells(self) -> list[str]:
        """A row under `HEADS`."""
        return [
            self.name,
            ", ".join(self.also),
            self.label,
            self.meaning,
            self.direction or "–",
            ", ".join(self.needs),
        ]


def list_metrics() -> list[Listed]:
    """All metrics, those of installed packages included, group by group; a broken one is a line on stderr."""
    return [listed(metric) for metric in in_order(METRICS.entries(broken=say)).values()]


def listed(metric: Metric) -> Listed:
    """Returns what the list says of a metric."""
    info = metric.info()
    needs = tuple(NEEDS[need].label for need in metric.needs) or ("captions",)
    return Listed(metric.name, (*metric.aliases, *metric.families), info.label, info.help, info.direction, needs)


def table(metrics: Sequence[Listed]) -> rich.table.Table:
    """The list for people."""
    shown = rich.table.Table(
        box=box.SIMPLE_HEAD, title="metrics; with --bags FILE also recall and mean rank in its sets"
    )
    for head in HEADS:
        shown.add_column(head, overflow="fold")
    for metric in metrics:
        shown.add_row(*metric.cells())
    return shown


def markdown(metrics: Sequence[Listed]) -> str:
    """The list as the table of ``docs/metrics.md``."""
    rows = [HEADS, ("---",) * len(HEADS), *(metric.cells() for metric in metrics)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)
