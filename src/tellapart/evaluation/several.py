"""Metrics of one caption chosen among several of a picture: the best by the metric, or the scorer's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import CaptionSetMetric, Metric
from tellapart.evaluation.slots import Measurement, Slot
from tellapart.metrics.results import BEST, ORACLE

SUFFIXES = (ORACLE, BEST)


@dataclass(frozen=True, kw_only=True)
class ChosenCaption(Metric):
    """A metric of one caption chosen for each picture: ``choose(context, slots) -> Measurement``."""

    choose: Callable[[EvalContext, Sequence[Slot]], Measurement]

    def measure(self, context: EvalContext, slots: Sequence[Slot]) -> Measurement | None:
        """The metric of a system; None where it has one caption of each picture."""
        return self.choose(context, slots) if len(slots) > 1 else None


def with_choices(metric: Metric) -> list[ChosenCaption]:
    """``METRIC.oracle`` and ``METRIC.best`` of a metric of one caption; none of a metric of several."""
    return [] if isinstance(metric, CaptionSetMetric) else [oracle(metric), best(metric)]


def oracle(metric: Metric) -> ChosenCaption:
    """The best of a picture's captions by the metric itself: what a perfect choice among them would score.

    The mean over pictures of the best caption's own number, also where the metric's corpus number is no mean.
    """

    def choose(context: EvalContext, slots: Sequence[Slot]) -> Measurement:
        measured = [metric.of_slot(context, slot) for slot in slots]
        values = [one.value_N for one in measured if one.value_N is not None]
        if not values:
            raise UsageError(f"{metric.name} has no number for a single caption, so no caption is the best by it")
        extreme = np.fmin if (metric.direction or metric.oracle) == "lower" else np.fmax
        return Measurement(extreme.reduce(values), weight_N=measured[0].weight_N)

    return _chosen(
        metric,
        ORACLE,
        choose,
        signature=lambda context: f"best-of-captions,mean-of-pictures|{metric.variant(context)}",
        label=f"{metric.title}, best caption",
        help=f"{metric.help}; of the best of each picture's captions by it",
        needs=(*metric.needs, "several"),
    )


def best(metric: Metric) -> ChosenCaption:
    """The metric of the caption that the scorer matches best with the picture: best-of-n, as a reranker would score.

    A further scorer (``eval_scorers``) measures the captions that the first one prefers.
    """

    def choose(context: EvalContext, slots: Sequence[Slot]) -> Measurement:
        return metric.of_slot(context, preferred(context, slots))

    return _chosen(
        metric,
        BEST,
        choose,
        signature=lambda context: f"best-by:{(context.primary or context).scorer_name()}|{metric.variant(context)}",
        label=f"{metric.title}, the scorer’s choice",
        help=f"{metric.help}; of the caption of each picture that the scorer prefers",
        needs=tuple(dict.fromkeys((*metric.needs, "pictures", "scorer", "several"))),
    )


def preferred(context: EvalContext, slots: Sequence[Slot]) -> Slot:
    """Of each picture's captions the one with the highest cosine with it by the first scorer; the earlier of equals."""
    first = context.primary or context

    def choose() -> Slot:
        score_SN = np.stack([np.einsum("nd,nd->n", first.text_features(slot), first.images) for slot in slots])
        choice = [slots[slot] for slot in score_SN.argmax(0)]
        captions = [slot.captions[row] for row, slot in enumerate(choice)]
        references = [slot.references[row] for row, slot in enumerate(choice) if slot.references is not None]
        return Slot(captions, references if len(references) == len(captions) else None)

    return first.once(("preferred", *map(id, slots)), choose)


def _chosen(
    metric: Metric,
    suffix: str,
    choose: Callable[[EvalContext, Sequence[Slot]], Measurement],
    *,
    signature: Callable[[EvalContext], str],
    label: str,
    help: str,
    needs: tuple[str, ...],
) -> ChosenCaption:
    return ChosenCaption(
        name=metric.name + suffix,
        factory=metric.factory,
        choose=choose,
        signature=signature,
        label=label,
        help=help,
        needs=needs,
        direction=metric.direction,
        digits=metric.digits,
        group=metric.group,
        check=metric.check,
        bounds=metric.bounds,
        short=metric.short,
    )
