"""Computes intervals and paired differences for one metric and several systems."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

import numpy as np

from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Measurement, Sums, by_unit
from tellapart.metrics.draws import Draws
from tellapart.metrics.intervals import SINGLE, Estimate, Interval, mean_estimate
from tellapart.metrics.paired_tests import Difference, PairedTest, bounds_of_difference, paired_means


class SystemStatistics:
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
        self._systems = {name: _estimate(draws, one, bounds, unit_N) for name, one in measured.items()}
        self._pairs: dict[tuple[str, str], PairedTest] = {}
        for a, b in pairs:
            base, system = measured[a], measured[b]
            limits = UNBOUNDED if (a, b) in same else bounds
            if base.corpus is None or system.corpus is None:
                assert base.value_N is not None and system.value_N is not None
                means = system.value_N, base.value_N, system.weight_N, unit_N
                self._pairs[a, b] = paired_means(draws, *means, limits)
                continue
            values = None
            if base.value_N is not None and system.value_N is not None:
                values = system.value_N - base.value_N
                limits = UNBOUNDED if (a, b) in same else system.corpus.bounds
            limits = bounds_of_difference(limits, system.value_N, base.value_N)
            self._pairs[a, b] = PairedTest(draws, self._systems[b], self._systems[a], values, limits)

    def intervals(self) -> dict[str, Interval]:
        """Returns the intervals by system."""
        return {system: estimate.interval() for system, estimate in self._systems.items()}

    def differences(self) -> dict[tuple[str, str], Difference]:
        """Returns the difference for each pair: system b minus system a."""
        return {pair: test.difference() for pair, test in self._pairs.items()}

    def procedures(self, without: Container[str] = ()) -> list[str]:
        """Returns a sorted list of how the intervals were computed. Ignores the systems in ``without``."""
        of_systems = {one.procedure for name, one in self._systems.items() if name not in without}
        return sorted((of_systems | {test.procedure for test in self._pairs.values()}) - {SINGLE})


def _estimate(draws: Draws, measured: Measurement, bounds: Bounds, unit_N: np.ndarray | None) -> Estimate:
    """Returns a system's score, in which a score that is a function of sums is resampled by unit."""
    corpus = measured.corpus
    if corpus is None:
        assert measured.value_N is not None
        return mean_estimate(draws, measured.value_N, measured.weight_N, unit_N, bounds)
    if unit_N is not None and isinstance(corpus, Sums):
        corpus = replace(corpus, stats=by_unit(corpus.stats, unit_N), n=len(corpus))
    return Estimate(draws, corpus, measured.value_N)
