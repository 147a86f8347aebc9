"""Computes intervals and paired differences for one metric and several systems."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

import numpy as np

from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Corpus, Measurement, Sums, by_unit, mean_of
from tellapart.metrics.draws import Draws
from tellapart.metrics.intervals import SINGLE, Estimate, Interval
from tellapart.metrics.paired_tests import Difference, PairedTest, bounds_of_difference, paired_means


class MetricTests:
    """The systems' intervals and paired differences for one metric. ``draws`` provides the resamples.

    bounds: a picture's lowest and highest possible value.
    unit_N: each picture's unit, if pictures are dependent. None means that each picture is its own unit.
    same: pairs of systems with identical captions, which cannot differ.
    """

    def __init__(
        self,
        draws: Draws,
        measured: Mapping[str, Measurement],
        pairs: Iterable[tuple[str, str]],
        bounds: Bounds = UNBOUNDED,
        unit_N: np.ndarray | None = None,
        same: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._systems: dict[str, Estimate] = {}
        for name, one in measured.items():
            if one.corpus is not None:
                self._systems[name] = Estimate(draws, _of_units(one.corpus, unit_N), one.value_N)
            else:
                corpus = mean_of(_values(one), one.weight_N, unit_N, bounds)
                self._systems[name] = Estimate(draws, corpus, corpus.score(corpus.stats))
        self._pairs: dict[tuple[str, str], PairedTest] = {}
        for a, b in pairs:
            base, system = measured[a], measured[b]
            limits = UNBOUNDED if (a, b) in same else bounds
            if base.corpus is None or system.corpus is None:
                means = _values(system), _values(base), system.weight_N, unit_N, limits
                self._pairs[a, b] = paired_means(draws, *means)
                continue
            values = None
            if base.value_N is not None and system.value_N is not None:
                values = system.value_N - base.value_N
                limits = UNBOUNDED if (a, b) in same else system.corpus.bounds
            limits = bounds_of_difference(limits, system.value_N, base.value_N)
            self._pairs[a, b] = PairedTest(draws, self._systems[b], self._systems[a], values, limits)

    def intervals(self) -> dict[str, Interval]:
        """Returns the intervals by system. Call this method and `differences` after `Draws.run`."""
        return {system: estimate.interval() for system, estimate in self._systems.items()}

    def differences(self) -> dict[tuple[str, str], Difference]:
        """Returns the difference for each pair: system b minus system a."""
        return {pair: test.difference() for pair, test in self._pairs.items()}

    def procedures(self, without: Container[str] = ()) -> list[str]:
        """Returns a sorted list of how the intervals were computed. Ignores the systems in ``without``."""
        of_systems = {one.procedure for name, one in self._systems.items() if name not in without}
        return sorted((of_systems | {test.procedure for test in self._pairs.values()}) - {SINGLE})


def _of_units(corpus: Corpus, unit_N: np.ndarray | None) -> Corpus:
    """Groups a score by units for resampling. A score that is not a function of sums is resampled by item."""
    if unit_N is None or not isinstance(corpus, Sums):
        return corpus
    return replace(corpus, stats=by_unit(corpus.stats, unit_N), n=len(corpus))


def _values(measured: Measurement) -> np.ndarray:
    assert measured.value_N is not None
    return measured.value_N
