"""Tables of paper 2 on `scenes`, each figure beside the paper's: ``tellapart tables``.

RD100 is as in the paper; TrueMatch's bags are mined from the test pictures and their holistic captions by algorithms 1
and 2, without people's choice among them. CIDEr and BLEU-4 read the captions of the kind that MLE learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.claims.claim import Term
from tellapart.claims.crew import Crew, Task
from tellapart.claims.lab import Lab
from tellapart.claims.measure import Heard
from tellapart.claims.ndlb import TABLES, PaperTable, Row
from tellapart.errors import UsageError
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from rich.table import Table

TEST = "plain"
NAMES = {
    "bleu4": "BLEU-4", "cider": "CIDEr", "r1": "RD100 R@1", "clipscore": "ClipScore",
    "bag3": "TrueMatch #3", "bag5": "#5", "bag7": "#7",
}  # fmt: skip


@dataclass(frozen=True)
class Filled:
    """A table with our figures: a row of them for each of its own, means over ``seeds``.

    ``settings``: n, candidates and chance of its recalls.
    """

    table: PaperTable
    ours: tuple[tuple[float, ...], ...]
    seeds: tuple[int, ...]
    settings: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """``{"table", "title", "seeds", "rows": [{"labels", "arm", "ours", "paper"}], "settings"}``."""
        rows = [
            {
                "labels": dict(zip(self.table.heads, row.labels, strict=True)),
                "arm": row.arm,
                "ours": {name: round(value, 3) for name, value in zip(self.table.measures, ours, strict=True)},
                "paper": dict(zip(self.table.measures, row.paper, strict=True)),
            }
            for row, ours in zip(self.table.rows, self.ours, strict=True)
        ]
        return {"table": self.table.number, "title": self.table.title, "seeds": list(self.seeds), "rows": rows,
                "settings": self.settings}  # fmt: skip

    def shown(self) -> Table:
        """For people: in each cell our figure, and the paper's in brackets."""
        from rich.table import Table

        title = f"Table {self.table.number}: {self.table.title}. On scenes (in the paper, on COCO)"
        shown = Table(title=title)
        for head in self.table.heads:
            shown.add_column(head)
        for name in self.table.measures:
            setting = self.settings.get(name, "").replace(", ", "\n")
            shown.add_column("\n".join(filter(None, (NAMES[name], setting))), justify="right")
        for row, ours in zip(self.table.rows, self.ours, strict=True):
            cells = [f"{value:.1f} ({paper:.1f})" for value, paper in zip(ours, row.paper, strict=True)]
            shown.add_row(*row.labels, *cells)
        return shown


def run_tables(
    numbers: Sequence[int] = (), seeds: Sequence[int] = (10,), folder: Path | None = None, workers: int = 1
) -> list[Filled]:
    """These tables (default: all), every arm trained and heard once in the folder that claims share.

    Raises `UsageError` for a number that is none of them, before anything is trained.
    """
    from tellapart.claims import FOLDER
    from tellapart.claims.catalogue import DECODINGS, TESTS
    from tellapart.claims.ndlb import NDLB

    known = {table.number: table for table in TABLES}
    for number in numbers:
        if number not in known:
            raise UsageError(f"table {number} of paper 2 is not among these; known: {', '.join(map(str, known))}")
    tables = [known[number] for number in dict.fromkeys(numbers)] or list(TABLES)
    return fill(tables, Lab(folder or FOLDER, NDLB, TESTS, DECODINGS), seeds, workers)


def fill(tables: Sequence[PaperTable], lab: Lab, seeds: Sequence[int], workers: int = 1) -> list[Filled]:
    """The tables with our figures; arms are trained in this process, or by ``workers`` others."""
    asked = [task for task in tasks(tables, lab, seeds) if task.heard]  # the others are captions that are there
    if workers > 1 and asked:
        with Crew(lab, asked, workers) as crew:
            crew.finish({task.key for task in asked})
    found = []
    for table in tables:
        say(f"table {table.number}: {table.title}")
        ours = [tuple(_mean(lab, row, name, seeds) for name in table.measures) for row in table.rows]
        found.append(Filled(table, tuple(ours), tuple(seeds), _settings(lab, table, seeds[0])))
    return found


def _settings(lab: Lab, table: PaperTable, seed: int) -> dict[str, str]:
    """What stands beside the recalls of a table; every arm has the same pictures and candidates."""
    heard = lab.hear(Term(table.rows[0].arm, "r1", TEST), seed)
    return {name: lab.setting(heard, AMONG[name]) for name in table.measures if name in AMONG}


def tasks(tables: Sequence[PaperTable], lab: Lab, seeds: Sequence[int]) -> list[Task]:
    """Each arm with each seed once, what it starts from before it."""
    arms = dict.fromkeys(arm for table in tables for row in table.rows for arm in lab.needs(row.arm))
    heard = {arm: ((TEST, "greedy"),) if lab.captioned(Term(arm, "r1")) else () for arm in arms}
    return [Task(arm, seed, heard[arm]) for arm in arms for seed in seeds]


def _mean(lab: Lab, row: Row, name: str, seeds: Sequence[int]) -> float:
    values = []
    for seed in seeds:
        term = Term(row.arm, "r1", TEST)
        lab.prepare(term, seed)
        values.append(MEASURES[name](lab.hear(term, seed), row.stage))
    return float(np.mean(values))


def _recall(heard: Heard, stage: str) -> float:
    return float(np.nanmean(100 * heard.lab.hits(heard, "random")))


def _bags(size: int) -> Callable[[Heard, str], float]:
    def recall(heard: Heard, stage: str) -> float:
        return float(np.nanmean(100 * heard.lab.hits(heard, f"bag{size}")))

    return recall


def _clipscore(heard: Heard, stage: str) -> float:
    """100 · cosine, as paper 2 has it: without the factor 2.5 and the prefix."""
    return float(np.mean(100 * heard.lab.cosines(heard)))


def _cider(heard: Heard, stage: str) -> float:
    from tellapart.metrics.cider import cider_d

    return float(100 * cider_d(heard.firsts, _references(heard, stage))[0])


def _bleu4(heard: Heard, stage: str) -> float:
    from tellapart.metrics.overlap import bleu

    return float(100 * bleu(heard.firsts, _references(heard, stage))[0])


def _references(heard: Heard, stage: str) -> list[list[str]]:
    """What MLE learned: people's captions, or the one boosted caption of each test picture."""
    if not stage:
        return heard.references
    return [[texts[stage]] for texts in heard.lab.boosted(heard.test, 0)]


AMONG = {"r1": "random", **{f"bag{size}": f"bag{size}" for size in (3, 5, 7)}}
MEASURES: dict[str, Callable[[Heard, str], float]] = {
    "bleu4": _bleu4,
    "cider": _cider,
    "r1": _recall,
    "clipscore": _clipscore,
    **{f"bag{size}": _bags(size) for size in (3, 5, 7)},
}
