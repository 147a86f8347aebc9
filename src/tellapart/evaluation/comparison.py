"""Compares systems: computes intervals for all measurements, and paired differences over pictures."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tellapart import __version__
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.draws import Draws
from tellapart.metrics.holm import holm
from tellapart.metrics.intervals import PROCEDURES, SINGLE
from tellapart.metrics.metric import Metric
from tellapart.metrics.metric_tests import MetricTests
from tellapart.metrics.paired_tests import ALPHA
from tellapart.metrics.results import Results, SystemPair
from tellapart.metrics.slots import CHANCE, HUMAN, CaptionSlot
from tellapart.utils.messages import detail


def caption_shares(texts: Sequence[str]) -> dict[str, float]:
    """Returns the share of a picture's captions that each distinct caption makes up. Systems with equal shares have
    equal metrics.
    """
    return {text: count / len(texts) for text, count in Counter(texts).items()}


class Comparison:
    """Fills a `Results`: `add` adds one metric's measurements, and `finish` computes the intervals and differences.

    slots: each system's captions.
    inputs: sets the number of resamples and the seed. ``pairs="first"`` compares each system with the first one,
        ``pairs="all"`` compares every pair of systems. ``correction="holm"`` corrects p over all pairs and metrics.
    """

    def __init__(self, results: Results, slots: Mapping[str, list[CaptionSlot]], inputs: EvalInputs) -> None:
        self.results, self.inputs = results, inputs
        self.captions = {name: [slot.captions for slot in own] for name, own in slots.items()}
        self._shares = {
            name: [caption_shares(texts) for texts in zip(*own, strict=True)] for name, own in self.captions.items()
        }
        self._draws = Draws(inputs.resamples, inputs.seed)
        self._tests: dict[str, MetricTests] = {}
        self._units: dict[str, str] = {}

    def add(self, metric: Metric, context: EvalContext, measured: dict[str, Measurement], *, scorer: str = "") -> None:
        """Adds all systems' measurements of one metric. ``scorer``: the scorer's name, if it is an additional
        scorer.
        """
        scorer = scorer or metric.tag(context)  # a judge's dates are known only after it has answered
        key = f"{metric.name}@{scorer}" if scorer else metric.name
        if self.inputs.chance and metric.chance is not None:
            questions_N = next((one.weight_N for one in measured.values()), None)
            measured[CHANCE] = Measurement(metric.chance(context), weight_N=questions_N)
        # Frames of one clip are similar, and pictures in a bag compete with each other, so they are dependent.
        pools = metric.pools or "imagecode"
        unit_N = context.sets(pools).units(len(context.ids)) if pools in context.file_sets else None
        self._units[key] = "" if unit_N is None else ",unit:sets"
        self._describe(metric, key, context, measured, scorer)
        pairs = list(self._pairs(measured))
        same = [(a, b) for a, b in pairs if HUMAN not in (a, b) and self._shares[a] == self._shares[b]]
        self._tests[key] = MetricTests(self._draws, measured, pairs, metric.bounds_in(context), unit_N, same)
        for system, one in measured.items():
            if one.value_N is not None:
                self.results.values.setdefault(system, {})[key] = one.value_N

    def finish(self) -> None:
        """Computes the intervals of all measurements and of all differences between systems from one set of
        resamples.
        """
        started = time.monotonic()
        self._draws.run()
        for key, test in self._tests.items():
            for system, interval in test.intervals().items():
                self.results.systems.setdefault(system, {})[key] = interval
            self.results.pairs += [
                SystemPair(a, b, key, difference) for (a, b), difference in test.differences().items()
            ]
            procedures = "+".join(test.procedures(without=(CHANCE,))) or SINGLE
            self.results.signatures[key] += (
                f"|{PROCEDURES}:{procedures},{self._draws.resamples}@{self._draws.seed}{self._units[key]}"
            )
        if self.inputs.correction == "holm":
            self._correct()
        resamples = self._draws.resamples
        detail(f"drew {resamples:,} resamples for {len(self._tests)} metrics in {time.monotonic() - started:.2f} s")

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

    def _describe(
        self,
        metric: Metric,
        key: str,
        context: EvalContext,
        measured: Mapping[str, Measurement],
        scorer: str,
    ) -> None:
        """Adds the metric's signature, candidate sets, and description for reports. `finish` completes the
        signature.
        """
        captions = {len(own) for system, own in self.captions.items() if system in measured and system != HUMAN} - {1}
        self.results.signatures[key] = (
            f"{metric.short or metric.name}|{metric.variant(context)}"
            + (f"|references:{context.references_digest}" if "references" in metric.needs else "")
            + f"|tellapart:{__version__}"
            + (f"|human:{self.inputs.human}" if HUMAN in measured else "")
            + (f"|captions:{','.join(map(str, sorted(captions)))}" if captions else "")
        )
        candidates = metric.candidates(context)
        if candidates is not None:
            self.results.candidates[key] = candidates
        self.results.metrics[key] = metric.info(candidates, scorer)

    def _pairs(self, measured: Mapping[str, Measurement]) -> Iterator[tuple[str, str]]:
        systems = [system for system in measured if system != CHANCE]
        return (
            pair for pair in itertools.combinations(systems, 2) if self.inputs.pairs == "all" or pair[0] == systems[0]
        )
