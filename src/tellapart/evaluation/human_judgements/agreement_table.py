"""A table that shows how well each metric agrees with human judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import rich
import rich.table

from tellapart.evaluation.human_judgements.judgements import Judgements
from tellapart.utils.tables import table_of

ALL = "all"  # key of the mean over pair categories


@dataclass(frozen=True)
class MetricAgreement:
    """One metric's agreement, in percent. A field is None if the ratings or pairs it needs are missing.

    accuracy: the accuracy for each pair category; "all" is the mean over categories.
    low, high: the 95% interval, from resampled pictures, of the tau (or accuracy) that papers report for this set.
    n: the number of captions with a value.
    published: this metric's tau in a published table.
    repeats: the tau for each repeat of a judge; all other fields use the mean over repeats.
    deviation: the standard deviation of a caption's value over repeats, in the metric's unit; the root mean square over
        captions.
    """

    tau_b: float | None
    tau_c: float | None
    spearman: float | None
    accuracy: dict[str, float]
    n: int
    low: float | None = None
    high: float | None = None
    published: float | None = None
    repeats: tuple[float, ...] = ()
    deviation: float | None = None


@dataclass
class AgreementTable:
    """Each metric's agreement with people, by metric name, and the judgements it was measured on."""

    judgements: Judgements
    metrics: dict[str, MetricAgreement] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"judgements": …, "metrics": {NAME: {"tau_b", "tau_c", …}}, "signatures": …, "notes": […]}``."""
        own = self.judgements
        counts = {
            "layout": own.layout,
            "judges": own.judges,
            "captions": len(own.captions),
            "pictures": len({caption.picture for caption in own.captions}),
            "ratings": own.ratings,
            "pairs": len(own.pairs),
            "tau": own.tau,
        }
        metrics = {name: asdict(found) for name, found in self.metrics.items()}
        return {"judgements": counts, "metrics": metrics, "signatures": self.signatures, "notes": self.notes}

    def table(self) -> rich.table.Table:
        """Returns a table of metrics, sorted from best to worst by the figure that papers report for this set."""
        own = self.judgements
        title = f"{own.layout}: {len(own.captions):,} captions, {own.ratings:,} ratings, {len(own.pairs):,} pairs"
        heads, *rows = self.rows(sorted(self.metrics, key=self._key, reverse=True))
        return table_of(heads, rows, f"{title}; {own.judges}; ×100")

    def rows(self, names: Sequence[str] | None = None) -> list[list[str]]:
        """Returns the header row, then one row of text cells for each metric in ``names``. Leaves out empty columns."""
        cells = {name: _cells(self.metrics[name]) for name in names or self.metrics}
        heads = [head for head in next(iter(cells.values()), {}) if any(own[head] != "–" for own in cells.values())]
        return [
            ["metric", *heads],
            *([self.labels.get(name, name), *(own[head] for head in heads)] for name, own in cells.items()),
        ]

    def _key(self, name: str) -> float:
        value = reported(self.metrics[name], self.judgements.tau)
        return -np.inf if value is None or np.isnan(value) else value


def reported(found: MetricAgreement, tau: str) -> float | None:
    return {"b": found.tau_b, "c": found.tau_c}.get(tau, found.accuracy.get(ALL))


def _cells(own: MetricAgreement) -> dict[str, str]:
    """Returns a metric's cells by column name."""
    spread = (min(own.repeats), max(own.repeats)) if own.repeats else ()
    return {
        "tau-b": _shown(own.tau_b),
        "tau-c": _shown(own.tau_c),
        "Spearman": _shown(own.spearman),
        **{f"pairs {name}".removesuffix(f" {ALL}"): _shown(value) for name, value in own.accuracy.items()},
        "95%": _shown(own.low, own.high),
        "published": _shown(own.published),
        "repeats": _shown(*spread),
        "SD": "–" if own.deviation is None else f"{own.deviation:.3g}",
        "n": f"{own.n:,}",
    }


def _shown(*values: float | None) -> str:
    known = [f"{value:.1f}" for value in values if value is not None and not np.isnan(value)]
    return " … ".join(known) or "–"
