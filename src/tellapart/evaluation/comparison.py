"""Systems side by side: intervals of what was measured, and the paired differences, picture by picture."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import Metric
from tellapart.evaluation.slots import CHANCE, HUMAN, Measurement
from tellapart.metrics.draws import Drawn, Draws
from tellapart.metrics.resampling import Statistic
from tellapart.metrics.results import Pair, Results
from tellapart.metrics.significance import (
    UNBOUNDED,
    Bounds,
    Difference,
    Interval,
    MeanTest,
    Resampled,
    bounds_of_difference,
    difference_of,
    paired_values,
)
from tellapart.utils.messages import detail

PAIRS = ("first", "all")


class Comparison:
    """Fills a `Results`: measurements metric by metric (`add`), then all intervals and differences (`finish`).

    captions: how many each system has of a picture. human: what a signature says of people's captions. pairs: "first"
    compares each system with the first one, "all" every two systems.
    """

    def __init__(
        self,
        results: Results,
        captions: Mapping[str, int],
        *,
        resamples: int = 1000,
        seed: int = 0,
        human: str = "",
        pairs: str = "first",
    ) -> None:
        self.results, self.captions, self.human, self.pairs = results, captions, human, pairs
        self.resamples, self.seed = resamples, seed
        self._found: dict[str, tuple[Mapping[str, Measurement], Bounds]] = {}

    def add(
        self,
        metric: Metric,
        context: EvalContext,
        measured: dict[str, Measurement],
        *,
        scorer: str = "",
        chance: bool = False,
    ) -> None:
        """One metric of all systems. ``scorer``: the name of the further scorer whose context this is."""
        scorer = scorer or metric.tag(context)  # a judge's days are known once it was asked
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        if chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        self._describe(metric, key, context, measured, scorer)
        self._found[key] = measured, metric.bounds_in(context)
        for system, one in measured.items():
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N

    def finish(self) -> None:
        """Intervals of all that was measured, and the differences between systems, from one set of resamples."""
        started = time.monotonic()
        draws = Draws(self.resamples, self.seed)
        tests = {
            key: MetricTests(draws, measured, self._pairs(measured), bounds)
            for key, (measured, bounds) in self._found.items()
        }
        draws.run()
        for key, test in tests.items():
            for system, interval in test.intervals().items():
                self.results.systems.setdefault(system, {})[key] = interval
            self.results.pairs += [Pair(a, b, key, difference) for (a, b), difference in test.differences().items()]
        detail(f"drew {self.resamples:,} resamples for {len(tests)} metrics in {time.monotonic() - started:.2f} s")

    def _describe(
        self, metric: Metric, key: str, context: EvalContext, measured: Mapping[str, Measurement], scorer: str
    ) -> None:
        """The metric's signature, its candidate sets, and what reports say of it."""
        captions = {count for system, count in self.captions.items() if system in measured and system != HUMAN} - {1}
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

    def _pairs(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, str]]:
        systems = [system for system in measured if system != CHANCE]
        return (pair for pair in itertools.combinations(systems, 2) if self.pairs == "all" or pair[0] == systems[0])


class MetricTests:
    """The intervals of one metric's systems and their paired differences, to be drawn by ``draws``.

    bounds: the least and the greatest value of a picture.
    """

    def __init__(
        self,
        draws: Draws,
        measured: Mapping[str, Measurement],
        pairs: Iterable[tuple[str, str]],
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        self._measured, self._draws, self._bounds = measured, draws, bounds
        self._corpora = {
            system: (one.corpus, one.corpus.build(one.corpus.rows))
            for system, one in measured.items()
            if one.corpus is not None
        }
        self._drawn = {
            system: draws.bootstrap(statistic, len(corpus.rows))
            for system, (corpus, statistic) in self._corpora.items()
        }
        self._means = {
            system: MeanTest(draws, one.value_N, one.weight_N, bounds=bounds)
            for system, one in measured.items()
            if one.corpus is None and one.value_N is not None
        }
        self._pairs = {(a, b): self._paired(a, b) for a, b in pairs}

    def intervals(self) -> dict[str, Interval]:
        """By system; call it after `Draws.run`, as `differences`."""
        return {
            system: self._resampled(system).interval() if system in self._corpora else self._means[system].interval()
            for system in self._measured
        }

    def differences(self) -> dict[tuple[str, str], Difference]:
        """System b minus system a, by pair."""
        return {
            (a, b): test.difference()
            if isinstance(test, MeanTest)
            else difference_of(self._resampled(b), self._resampled(a), test)
            for (a, b), test in self._pairs.items()
        }

    def _paired(self, a: str, b: str) -> MeanTest | Drawn:
        base, system = self._measured[a], self._measured[b]
        if a not in self._corpora or b not in self._corpora:
            assert base.value_N is not None and system.value_N is not None
            difference_N = paired_values(system.value_N, base.value_N)
            bounds = bounds_of_difference(self._bounds)
            return MeanTest(self._draws, difference_N, system.weight_N, paired=True, bounds=bounds)
        (base_corpus, base_statistic), (corpus, statistic) = self._corpora[a], self._corpora[b]

        def pooled() -> Statistic:
            rows, base_rows = _as_wide(corpus.rows, base_corpus.rows)
            return corpus.build(rows + base_rows)

        return self._draws.swap(statistic, base_statistic, len(corpus.rows), pooled)

    def _resampled(self, system: str) -> Resampled:
        corpus, statistic = self._corpora[system]
        n = len(corpus.rows)
        value, drawn_R = statistic(np.ones(n)), self._drawn[system].values_R
        return Resampled(statistic, n, value, drawn_R, self._measured[system].value_N, self._draws.seed)


def _as_wide(rows: list[Any], base: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows of equally many slots: a system with fewer captions of a picture says them again."""
    width = math.lcm(len(rows[0]), len(base[0]))
    return [row * (width // len(row)) for row in rows], [row * (width // len(row)) for row in base]
