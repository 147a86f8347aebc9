"""Compares systems: computes intervals for all measurements, and paired differences over pictures."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from dataclasses import replace

from tellapart import __version__
from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.draws import Draws
from tellapart.metrics.holm import holm
from tellapart.metrics.intervals import PROCEDURES, SINGLE
from tellapart.metrics.metric import Metric
from tellapart.metrics.paired_tests import ALPHA
from tellapart.metrics.results import Results, SystemPair
from tellapart.metrics.slots import CHANCE, HUMAN
from tellapart.metrics.system_statistics import SystemStatistics
from tellapart.utils.messages import detail


class Comparison:
    """Fills a `Results`: `add` adds one metric's measurements, and `finish` computes the intervals and differences.

    context: contains the captions and the settings. ``pairs="first"`` compares each system with the first one,
        ``pairs="all"`` compares every pair of systems. ``correction="holm"`` corrects p over all pairs and metrics.
    """

    def __init__(self, results: Results, context: EvalContext) -> None:
        self.results, self.inputs = results, context.inputs
        self._widths = {name: len(own) for name, own in context.slots.items() if name != HUMAN}
        # The share of a picture's captions that each distinct caption makes up. Systems with equal shares have equal
        # metrics.
        self._shares = {
            name: [
                {text: count / len(own) for text, count in Counter(texts).items()}
                for texts in zip(*(slot.captions for slot in own), strict=True)
            ]
            for name, own in context.slots.items()
        }
        self._draws = Draws(self.inputs.resamples, self.inputs.seed)
        self._tests: dict[str, tuple[SystemStatistics, str]] = {}  # with the part of the signature on resampling units

    def add(self, metric: Metric, context: EvalContext, measured: dict[str, Measurement], *, scorer: str = "") -> None:
        """Adds all systems' measurements of one metric, its signature (which `finish` completes), its candidate sets,
        and its description for reports. ``scorer``: the scorer's name, if it is an additional scorer.
        """
        scorer = scorer or metric.tag(context)  # a judge's dates are known only after it has answered
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        systems = list(measured)
        if self.inputs.chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        # Frames of one clip are similar, and pictures in a bag compete with each other, so they are dependent.
        pools = metric.pools or "imagecode"
        unit_N = context.sets(pools).units(len(context.ids)) if pools in context.file_sets else None
        pairs = list(itertools.combinations(systems, 2))
        if self.inputs.pairs == "first":
            pairs = pairs[: max(0, len(systems) - 1)]
        same = [(a, b) for a, b in pairs if HUMAN not in (a, b) and self._shares[a] == self._shares[b]]
        tests = SystemStatistics(self._draws, measured, pairs, metric.bounds_in(context), unit_N, same)
        self._tests[key] = tests, "" if unit_N is None else ",unit:sets"
        for system, one in measured.items():
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N
        widths = {width for name, width in self._widths.items() if name in measured} - {1}
        self.results.signatures[key] = (
            f"{metric.short or metric.name}|{metric.variant(context)}"
            + (f"|references:{context.references_digest}" if "references" in metric.needs else "")
            + f"|tellapart:{__version__}"
            + (f"|human:{self.inputs.human}" if HUMAN in measured else "")
            + (f"|captions:{','.join(map(str, sorted(widths)))}" if widths else "")
        )
        candidates = metric.candidates(context)
        if candidates is not None:
            self.results.candidates[key] = candidates
        self.results.metrics[key] = metric.info(candidates, scorer)

    def finish(self) -> None:
        """Computes the intervals of all measurements and of all differences between systems from one set of
        resamples.
        """
        started, results, draws = time.monotonic(), self.results, self._draws
        for key, (test, units) in self._tests.items():
            for system, interval in test.intervals().items():
                results.systems.setdefault(system, {})[key] = interval
            results.pairs += [SystemPair(a, b, key, difference) for (a, b), difference in test.differences().items()]
            procedures = "+".join(test.procedures(without=(CHANCE,))) or SINGLE
            results.signatures[key] += f"|{PROCEDURES}:{procedures},{draws.resamples}@{draws.seed}{units}"
        if self.inputs.correction == "holm":
            self._correct()
        took = time.monotonic() - started
        detail(f"drew {draws.resamples:,} resamples for {len(self._tests)} metrics in {took:.2f} s")

    def _correct(self) -> None:
        """Adds Holm-corrected p-values over all pairs and metrics."""
        pairs, resamples = self.results.pairs, self._draws.resamples
        adjusted = holm([pair.difference.p for pair in pairs])
        self.results.pairs = [
            replace(pair, difference=replace(pair.difference, p_holm=p))
            for pair, p in zip(pairs, adjusted, strict=True)
        ]
        tests = sum(not math.isnan(p) for p in adjusted)
        if tests / (1 + resamples) >= ALPHA:
            self.results.notes.append(
                f"with {resamples:,} resamples, p is at least {1 / (1 + resamples):.4f}, and Holm's correction "
                f"multiplies it by {tests}, so no difference can be significant; add --resamples {100 * tests}"
            )
