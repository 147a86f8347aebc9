"""Paper 2's tables on `scenes`, with each figure next to the paper's: ``tellapart tables``.

RD100 is as in the paper. TrueMatch's bags are mined from the test pictures and their holistic captions by algorithms 1
and 2, without human selection. CIDEr and BLEU-4 use captions of the kind that MLE was trained on as references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.bootstrap import Statistic, compare_with_bounds
from replication.claim import Measurement
from replication.lab import Lab
from replication.measures import MEASURES
from replication.ndlb import TABLES, PaperRow, PaperTable
from replication.worker_pool import Task, WorkerPool
from tellapart.errors import UsageError
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from rich.table import Table

TEST_SET = "plain"


@dataclass(frozen=True)
class MeasuredTable:
    """One of the paper's tables, with our figures.

    ours: one row per row of the table, with means over ``seeds``. intervals: the 95 % interval of each figure over
    seeds and pictures. settings: n, candidates and chance of its recalls.
    """

    table: PaperTable
    ours: tuple[tuple[float, ...], ...]
    intervals: tuple[tuple[tuple[float, float], ...], ...]
    seeds: tuple[int, ...]
    settings: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"table", "title", "seeds", "rows": [{"labels", "arm", "ours", "intervals", "paper"}],
        "settings"}``.
        """
        rows = [
            {
                "labels": dict(zip(self.table.label_columns, row.labels, strict=True)),
                "arm": row.arm,
                "ours": {name: round(value, 3) for name, value in zip(self.table.measures, ours, strict=True)},
                "intervals": {
                    name: [round(low, 3), round(high, 3)]
                    for name, (low, high) in zip(self.table.measures, ends, strict=True)
                },
                "paper": dict(zip(self.table.measures, row.paper, strict=True)),
            }
            for row, ours, ends in zip(self.table.rows, self.ours, self.intervals, strict=True)
        ]
        return {"table": self.table.number, "title": self.table.title, "seeds": list(self.seeds), "rows": rows,
                "settings": self.settings}  # fmt: skip

    def to_rich(self) -> Table:
        """Returns the table for the terminal. Each cell has our figure, its interval, and the paper's figure."""
        from rich.table import Table

        shown = Table(title=f"Table {self.table.number}: {self.table.title}. On scenes (in the paper, on COCO)")
        for column in self.table.label_columns:
            shown.add_column(column)
        for name in self.table.measures:
            setting = self.settings.get(name, "").replace(", ", "\n")
            shown.add_column("\n".join(filter(None, (MEASURES[name].title, setting))), justify="right")
        for row, ours, ends in zip(self.table.rows, self.ours, self.intervals, strict=True):
            cells = [
                f"{value:.1f} [{low:.1f}, {high:.1f}] ({paper:.1f})"
                for value, (low, high), paper in zip(ours, ends, row.paper, strict=True)
            ]
            shown.add_row(*row.labels, *cells)
        return shown


def run_tables(
    numbers: Sequence[int] = (),
    seeds: Sequence[int] = (0,),
    folder: Path | None = None,
    workers: int = 1,
    settings: Sequence[str] = (),
) -> list[MeasuredTable]:
    """Measures tables (default: all). Shares the folder and its trained arms with `replication.run_claims`.

    Raises `UsageError` before training if a number is unknown.
    """
    from replication import FOLDER
    from replication.arms import DECODINGS, TEST_SETS
    from replication.ndlb import NDLB

    known = {table.number: table for table in TABLES}
    for number in numbers:
        if number not in known:
            raise UsageError(f"table {number} of paper 2 is not available; known: {', '.join(map(str, known))}")
    tables = [known[number] for number in dict.fromkeys(numbers)] or list(TABLES)
    return measure_tables(tables, Lab(folder or FOLDER, NDLB, TEST_SETS, DECODINGS, settings=settings), seeds, workers)


def measure_tables(
    tables: Sequence[PaperTable], lab: Lab, seeds: Sequence[int], workers: int = 1
) -> list[MeasuredTable]:
    """Returns the tables with our figures. Trains arms in this process or in ``workers`` others."""
    tasks = [task for task in make_tasks(tables, lab, seeds) if task.captions]  # the others are references
    if workers > 1 and tasks:
        with WorkerPool(lab, tasks, workers) as pool:
            pool.finish({task.key for task in tasks})
    measured = []
    for table in tables:
        say(f"table {table.number}: {table.title}")
        rows = [[_statistics(lab, row, name, seeds) for name in table.measures] for row in table.rows]
        found = [[compare_with_bounds("", [(1.0, statistics)]) for statistics in row] for row in rows]
        ours = tuple(tuple(one.value for one in row) for row in found)
        intervals = tuple(tuple((one.low, one.high) for one in row) for row in found)
        # All arms have the same pictures and candidates, so the first row's settings apply to all.
        settings = {name: one[0].setting for name, one in zip(table.measures, rows[0], strict=True) if one[0].setting}
        measured.append(MeasuredTable(table, ours, intervals, tuple(seeds), settings))
    return measured


def make_tasks(tables: Sequence[PaperTable], lab: Lab, seeds: Sequence[int]) -> list[Task]:
    """Returns a task for each arm and seed, preceded by the task of the arm that it starts from."""
    arms = dict.fromkeys(arm for table in tables for row in table.rows for arm in lab.lineage(row.arm))
    captions = {arm: ((TEST_SET, "greedy"),) if lab.writes_captions(Measurement(arm, "r1")) else () for arm in arms}
    return [Task(arm, seed, captions[arm]) for arm in arms for seed in seeds]


def _statistics(lab: Lab, row: PaperRow, measure: str, seeds: Sequence[int]) -> list[Statistic]:
    """Returns one statistic per seed for the measure of a row's arm."""
    measurement = Measurement(row.arm, measure, TEST_SET)
    for seed in seeds:
        lab.prepare(measurement, seed)
    return [MEASURES[measure].factory(lab.generate_captions(measurement, seed, row.stage)) for seed in seeds]
