"""Systems side by side: each metric for every system, then the paired differences, picture by picture."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tellapart import __version__
from tellapart.evaluation.context import EvalContext, Measurement, Slot
from tellapart.evaluation.registry import Metric
from tellapart.metrics.results import Pair, Results
from tellapart.metrics.significance import (
    Difference,
    Interval,
    Resampled,
    mean_interval,
    paired_difference,
    paired_resampled,
    resample,
)
from tellapart.utils.messages import detail

HUMAN = "human"
CHANCE = "chance"
PAIRS = ("first", "all")


class Comparison:
    """Fills a `Results` metric by metric: every system, then its difference from the first system.

    human: what a signature says of people's captions. pairs: "first" compares each system with the first one, "all"
    every two systems.
    """

    def __init__(
        self,
        results: Results,
        slots: Mapping[str, list[Slot]],
        *,
        resamples: int = 1000,
        seed: int = 0,
        human: str = "",
        pairs: str = "first",
    ) -> None:
        self.results, self.slots, self.human, self.pairs = results, slots, human, pairs
        self.resamples, self.seed = resamples, seed

    def measure(self, metric: Metric, context: EvalContext, *, scorer: str = "", chance: bool = False) -> None:
        """One metric of all systems. ``scorer``: the name of the further scorer whose context this is."""
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        measured = self._measured(metric, key, context)
        if chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        self._describe(metric, key, context, measured, scorer)
        drawn = {system: self._resampled(one) for system, one in measured.items() if one.corpus is not None}
        for system, one in measured.items():
            self.results.systems.setdefault(system, {})[key] = self._interval(one, drawn.get(system))
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N
        for a, b in self._pairs(measured):
            self.results.pairs.append(Pair(a, b, key, self._difference(a, b, measured, drawn)))

    def _measured(self, metric: Metric, key: str, context: EvalContext) -> dict[str, Measurement]:
        started = time.monotonic()
        found = {
            system: measured
            for system, slots in self.slots.items()
            if not (system == HUMAN and self._has_no_references(metric, slots))
            and (measured := metric.measure(context, slots)) is not None
        }
        detail(f"measured {key} of {len(found)} systems in {time.monotonic() - started:.2f} s")
        return found

    def _describe(
        self, metric: Metric, key: str, context: EvalContext, measured: Mapping[str, Measurement], scorer: str
    ) -> None:
        """The metric's signature, its candidate sets, and what reports say of it."""
        captions = {len(slots) for system, slots in self.slots.items() if system in measured and system != HUMAN} - {1}
        self.results.signatures[key] = (
            f"{metric.short or metric.name}|{metric.variant(context)}"
            f"|bootstrap:{self.resamples}@{self.seed}|tellapart:{__version__}"
            + (self.human if HUMAN in measured else "")
            + (f"|captions:{','.join(map(str, sorted(captions)))}" if captions else "")
        )
        candidates = metric.candidates(context)
        if candidates is not None:
            self.results.candidates[key] = candidates
        self.results.formats[key] = metric.digits
        self.results.metrics[key] = metric.info(candidates, scorer)

    def _has_no_references(self, metric: Metric, slots: list[Slot]) -> bool:
        """A reference is scored against the others; where a picture has no other, people cannot be scored."""
        if "references" not in metric.needs:
            return False
        alone = any(not references for slot in slots for references in slot.references or [[]])
        note = f"{HUMAN} has no metric that needs references: some pictures have only one, which is the one scored"
        if alone and note not in self.results.notes:
            self.results.notes.append(note)
        return alone

    def _pairs(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, str]]:
        systems = [system for system in measured if system != CHANCE]
        return (pair for pair in itertools.combinations(systems, 2) if self.pairs == "all" or pair[0] == systems[0])

    def _resampled(self, measured: Measurement) -> Resampled:
        assert measured.corpus is not None
        rows = measured.corpus.rows
        return resample(measured.corpus.build(rows), len(rows), resamples=self.resamples, seed=self.seed)

    def _interval(self, measured: Measurement, drawn: Resampled | None) -> Interval:
        if drawn is not None:
            return drawn.interval()
        assert measured.value_N is not None
        return mean_interval(measured.value_N, weight_N=measured.weight_N, resamples=self.resamples, seed=self.seed)

    def _difference(
        self, a: str, b: str, measured: Mapping[str, Measurement], drawn: Mapping[str, Resampled]
    ) -> Difference:
        base, system = measured[a], measured[b]
        if base.corpus is not None and system.corpus is not None:
            rows, base_rows = _as_wide(system.corpus.rows, base.corpus.rows)
            pooled = system.corpus.build(rows + base_rows)
            return paired_resampled(drawn[b], drawn[a], pooled, resamples=self.resamples, seed=self.seed)
        assert base.value_N is not None and system.value_N is not None
        return paired_difference(
            system.value_N, base.value_N, weight_N=system.weight_N, resamples=self.resamples, seed=self.seed
        )


def _as_wide(rows: list[Any], base: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows of equally many slots: a system with fewer captions of a picture says them again."""
    width = math.lcm(len(rows[0]), len(base[0]))
    return [row * (width // len(row)) for row in rows], [row * (width // len(row)) for row in base]
