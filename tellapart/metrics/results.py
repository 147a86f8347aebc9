"""What an evaluation found: numbers for people, for programs, and for each picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.metrics.significance import Difference, Interval

if TYPE_CHECKING:
    from rich.console import Group

    from tellapart.metrics.words import Association

WORDS = "words"  # the key of word analysis among the signatures: no number of a system


@dataclass(frozen=True, slots=True)
class Pair:
    """System ``b`` against system ``a`` over the same pictures; ``difference`` is b minus a."""

    a: str
    b: str
    metric: str
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        """``{"a", "b", "metric", "difference", "low", "high", "n", "p"}``."""
        found = asdict(self.difference)
        return {"a": self.a, "b": self.b, "metric": self.metric, "difference": found.pop("value"), **found}


@dataclass
class Results:
    """Systems' metrics with intervals, paired differences, signatures, and what each picture contributed.

    ``values[system][metric]`` has one value per id of ``ids`` (NaN: abstains); a corpus metric has none.
    ``words`` are each system's own adjectives and nouns, where they were asked for.
    ``extra`` keeps what the gallery reads (candidate sets and scores) and is not printed.
    """

    ids: list[str]
    systems: dict[str, dict[str, Interval]] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    captions: dict[str, list[str]] = field(default_factory=dict)
    references: list[list[str]] | None = None
    formats: dict[str, int] = field(default_factory=dict)
    words: dict[str, list[Association]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The fixed JSON of ``tellapart eval --json``; a number that could not be had is null."""
        words = {name: [word.to_json() for word in found] for name, found in self.words.items()}
        return _plain(
            {
                "systems": {
                    name: {metric: asdict(interval) for metric, interval in found.items()}
                    for name, found in self.systems.items()
                },
                "pairs": [pair.to_json() for pair in self.pairs],
                "signatures": self.signatures,
                "notes": self.notes,
            }
            | ({"words": words} if words else {})
        )

    def table(self, *, without: Sequence[str] = ()) -> Group:
        """Metrics down, systems across, each with its 95 % interval; below it the paired differences.

        Pairs with a system of ``without`` (yardsticks, say) are left out.
        """
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [self._systems_table()]
        pairs = [pair for pair in self.pairs if not {pair.a, pair.b} & set(without)]
        if pairs:
            parts.append(self._pairs_table(pairs))
        if self.words:
            from tellapart.metrics.words import words_tables

            parts.extend(words_tables(self.words))
        parts.extend(Text(f"note: {note}", style="yellow") for note in self.notes)
        return Group(*parts)

    def _systems_table(self) -> Any:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, title=f"{len(self.ids)} pictures; 95 % bootstrap intervals")
        table.add_column("metric")
        for name in self.systems:
            table.add_column(name, justify="right", overflow="fold")
        for metric in self.signatures:
            if metric == WORDS:
                continue  # it has tables of its own
            row = [self._cell(found.get(metric), metric) for found in self.systems.values()]
            table.add_row(metric, *row)
        return table

    def _pairs_table(self, pairs: Sequence[Pair]) -> Any:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, title="paired differences, picture by picture (b − a)")
        for name in ("metric", "a", "b"):
            table.add_column(name, overflow="fold")
        for name in ("b − a", "95 % interval", "p"):
            table.add_column(name, justify="right")
        for pair in pairs:
            found, digits = pair.difference, self.formats.get(pair.metric, 1) + 1
            apart = found.low > 0 or found.high < 0
            numbers = (
                f"{found.value:+.{digits}f}",
                f"{found.low:+.{digits}f} … {found.high:+.{digits}f}",
                f"{found.p:.3f}",
            )
            shown = ("–", "–", "–") if math.isnan(found.value) else numbers
            table.add_row(pair.metric, pair.a, pair.b, *shown, style="bold" if apart else None)
        return table

    def _cell(self, interval: Interval | None, metric: str) -> str:
        if interval is None or math.isnan(interval.value):
            return "–"
        digits = self.formats.get(metric, 1)
        text = f"{interval.value:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
        return text + (f" n={interval.n}" if interval.n != len(self.ids) else "")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
