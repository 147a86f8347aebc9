"""Comparisons of two implementations, and the rows that a benchmark prints."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.errors import TellapartError
from tellapart.utils.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class RunResult:
    """One run's time or memory, in the row's unit, and its output."""

    amount: float
    output: Any


@dataclass(frozen=True)
class Comparison:
    """Two implementations of the same work. Both are called with the round's number and do the same work in that round.

    goal: the ratio to reach.
    tolerance: the maximum difference between the two outputs. If NaN, the outputs are not compared.
    """

    work: str
    goal: float
    unit: str
    ours: Callable[[int], RunResult]
    theirs: Callable[[int], RunResult]
    tolerance: float = 1e-9

    def run(self, repeat: int, progress: Progress) -> Row:
        """Runs both implementations ``repeat`` times, alternately, so that other load on the machine affects both
        equally.

        Raises `TellapartError` if their outputs differ.
        """
        amounts: dict[str, list[float]] = {"ours": [], "theirs": []}
        for number in range(repeat):
            outputs = {}
            for side, run_once in (("ours", self.ours), ("theirs", self.theirs))[:: -1 if number % 2 else 1]:
                run = run_once(number)
                amounts[side].append(run.amount)
                outputs[side] = run.output
                progress.advance()
            self._check(outputs["ours"], outputs["theirs"])
        return Row(self.work, amounts["ours"], amounts["theirs"], self.goal, self.unit)

    def _check(self, ours: Any, theirs: Any) -> None:
        gap = float(np.max(np.abs(np.asarray(ours, float) - np.asarray(theirs, float))))
        if gap > self.tolerance:
            raise TellapartError(
                f"{self.work}: the two implementations compute different numbers (difference up to {gap:.2g}, "
                f"expected at most {self.tolerance:g}), so their times cannot be compared"
            )


@dataclass(frozen=True)
class Row:
    """The time or memory of each run. ``ratio`` is their median divided by our median, i.e. above 1 if ours is better.

    Without ``theirs_R``, there is no ratio and no goal.
    """

    work: str
    ours_R: Sequence[float]
    theirs_R: Sequence[float]
    goal: float
    unit: str

    @property
    def ours(self) -> float:
        return statistics.median(self.ours_R)

    @property
    def theirs(self) -> float | None:
        return statistics.median(self.theirs_R) if self.theirs_R else None

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None or not self.ours else self.theirs / self.ours

    @property
    def met(self) -> bool:
        return self.ratio is None or self.ratio >= self.goal

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"work", "ours", "theirs", "ratio", "goal", "unit"}``."""
        keys = ("work", "ours", "theirs", "ratio", "goal", "unit")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class PairedRow(Row):
    """A row whose runs did different parts of the work. ``ratio`` is the median of the parts' ratios."""

    @property
    def ratio(self) -> float | None:
        return statistics.median(theirs / ours for theirs, ours in zip(self.theirs_R, self.ours_R, strict=True))


def table(rows: Sequence[Row], title: str) -> Table:
    """Returns a table for the terminal: medians with minimum and maximum, ratio, goal, and whether it is met."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, title=title)
    shown.add_column("work", overflow="fold")
    for name in ("ours", "theirs", "ratio", "goal", "met"):
        shown.add_column(name, justify="right")
    for row in rows:
        cells = ("–",) * 4
        if row.ratio is not None:
            goal = (f"{row.goal:g}×", "yes" if row.met else "no") if row.goal else ("–", "–")
            cells = (_amount(row.theirs_R, row.unit), f"{row.ratio:.1f}×", *goal)
        style = None if row.met else "bold red"
        shown.add_row(row.work, _amount(row.ours_R, row.unit), *cells, style=style)
    return shown


def _amount(amount_R: Sequence[float], unit: str) -> str:
    low, middle, high = min(amount_R), statistics.median(amount_R), max(amount_R)
    text = f"{middle:,.3g} {unit}" if middle < 100 else f"{middle:,.0f} {unit}"
    return text if low == high else f"{text} ({low:,.4g}–{high:,.4g})"
