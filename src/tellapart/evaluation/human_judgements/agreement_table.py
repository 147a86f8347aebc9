"""A table that shows how well each metric agrees with human judgements."""

from __future__ import annotations

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

    def reported(self, tau: str) -> float:
        """Returns the figure that papers report: the tau of this variant ("b" or "c"), otherwise the accuracy. NaN if
        it is missing.
        """
        value = {"b": self.tau_b, "c": self.tau_c}.get(tau, self.accuracy.get(ALL))
        return np.nan if value is None else value


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
            "ratings": sum(len(caption.ratings) for caption in own.captions),
            "pairs": len(own.pairs),
            "tau": own.tau,
        }
        metrics = {name: asdict(found) for name, found in self.metrics.items()}
        return {"judgements": counts, "metrics": metrics, "signatures": self.signatures, "notes": self.notes}

    def table(self) -> rich.table.Table:
        """Returns a table of metrics, sorted from best to worst by the figure that papers report for this set. Leaves
        out empty columns.
        """
        own = self.to_json()["judgements"]
        rank = {name: np.nan_to_num(each.reported(own["tau"]), nan=-np.inf) for name, each in self.metrics.items()}
        cells = {name: _cells(self.metrics[name]) for name in sorted(rank, key=rank.__getitem__, reverse=True)}
        heads = [head for head in next(iter(cells.values()), {}) if any(row[head] != "–" for row in cells.values())]
        rows = [[self.labels.get(name, name), *(row[head] for head in heads)] for name, row in cells.items()]
        title = "{layout}: {captions:,} captions, {ratings:,} ratings, {pairs:,} pairs; {judges}; ×100"
        return table_of(["metric", *heads], rows, title.format(**own))


def _cells(own: MetricAgreement) -> dict[str, str]:
    """Returns a metric's cells by column name."""
    return {
        "tau-b": _shown(own.tau_b),
        "tau-c": _shown(own.tau_c),
        "Spearman": _shown(own.spearman),
        **{f"pairs {name}".removesuffix(f" {ALL}"): _shown(value) for name, value in own.accuracy.items()},
        "95%": _shown(own.low, own.high),
        "published": _shown(own.published),
        "repeats": _shown(*((min(own.repeats), max(own.repeats)) if own.repeats else ())),
        "SD": "–" if own.deviation is None else f"{own.deviation:.3g}",
        "n": f"{own.n:,}",
    }


def _shown(*values: float | None) -> str:
    known = [f"{value:.1f}" for value in values if value is not None and not np.isnan(value)]
    return " … ".join(known) or "–"
