"""The table of metrics' agreement with human judgements."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import rich
import rich.table

from tellapart.evaluation.judgement_types import Judgements
from tellapart.utils.tables import table_of

ALL = "all"  # mean over the categories of pairs


@dataclass(frozen=True)
class MetricAgreement:
    """One metric's agreement, in percent; None if there are no ratings, or no pairs.

    accuracy: by category of pairs; "all" is the mean over categories.
    low, high: the 95% interval of the tau (or accuracy) that papers report for this set, from resampled pictures.
    n: the number of captions with a value.
    published: the tau of this metric in a published table.
    repeats: the tau for each repeat of a judge; all other fields use the mean over repeats.
    deviation: the standard deviation over repeats of a caption's value, as a root mean square over captions, in the
        metric's unit.
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
    """Each metric's agreement with people, by metric name, and the data it was measured on."""

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
        """Returns a table of metrics, sorted by the figure that papers report for this set, from best to worst."""
        own = self.judgements
        title = f"{own.layout}: {len(own.captions):,} captions, {own.ratings:,} ratings, {len(own.pairs):,} pairs"
        names = sorted(self.metrics, key=self._key, reverse=True)
        rows = [(self.labels.get(name, name), *self._cells(self.metrics[name])) for name in names]
        return table_of(("metric", *self._heads()), rows, f"{title}; {own.judges}; ×100")

    def rows(self) -> list[list[str]]:
        """Returns the table's cells as text: the heads, then a row per metric."""
        return [
            ["metric", *self._heads()],
            *([self.labels.get(name, name), *self._cells(found)] for name, found in self.metrics.items()),
        ]

    def _heads(self) -> list[str]:
        taus = ["tau-b", "tau-c", "Spearman"] if self.judgements.ratings else []
        return [
            *taus,
            *(f"pairs {name}".removesuffix(f" {ALL}") for name in self._categories()),
            *(["95%"] if self._resampled() else []),
            *(["published"] if self._published() else []),
            *(["repeats", "SD"] if self._repeated() else []),
            "n",
        ]

    def _cells(self, found: MetricAgreement) -> list[str]:
        taus = [found.tau_b, found.tau_c, found.spearman] if self.judgements.ratings else []
        shown = [*taus, *(found.accuracy.get(name) for name in self._categories())]
        cells = ["–" if value is None or np.isnan(value) else f"{value:.1f}" for value in shown]
        interval = (
            [f"{found.low:.1f} … {found.high:.1f}" if found.low is not None else "–"] if self._resampled() else []
        )
        if self._published():
            interval.append("–" if found.published is None else f"{found.published:.1f}")
        if self._repeated() and found.deviation is None:
            interval += ["–", "–"]
        elif self._repeated():
            interval += [f"{min(found.repeats):.1f} … {max(found.repeats):.1f}", f"{found.deviation:.3g}"]
        return [*cells, *interval, f"{found.n:,}"]

    def _published(self) -> bool:
        return any(found.published is not None for found in self.metrics.values())

    def _repeated(self) -> bool:
        return any(found.deviation is not None for found in self.metrics.values())

    def _resampled(self) -> bool:
        return any(found.low is not None for found in self.metrics.values())

    def _categories(self) -> list[str]:
        return list(next((found.accuracy for found in self.metrics.values()), {}))

    def _key(self, name: str) -> float:
        value = reported(self.metrics[name], self.judgements.tau)
        return -np.inf if value is None or np.isnan(value) else value


def reported(found: MetricAgreement, tau: str) -> float | None:
    return {"b": found.tau_b, "c": found.tau_c}.get(tau, found.accuracy.get(ALL))
