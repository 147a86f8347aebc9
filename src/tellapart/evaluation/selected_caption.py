"""Metrics of one selected caption per picture: the caption that the metric ranks best, or the scorer's choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric import CaptionSetMetric, Metric
from tellapart.metrics.result_keys import BEST, ORACLE
from tellapart.metrics.slots import CaptionSlot


@dataclass(frozen=True, kw_only=True)
class ChosenCaption(Metric):
    """A metric of one selected caption per picture, computed by ``choose(context, slots) -> Measurement``."""

    choose: Callable[[EvalContext, Sequence[CaptionSlot]], Measurement]

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """Measures a system. Returns None if the system has only one caption per picture."""
        return self.choose(context, slots) if len(slots) > 1 else None


def with_choices(metric: Metric) -> list[ChosenCaption]:
    """Returns ``METRIC.oracle`` and ``METRIC.best`` for a single-caption metric, and an empty list for other
    metrics.

    ``.oracle`` takes each picture's best value over its captions: an upper bound for any way of selecting captions. Its
    corpus score is the mean of these best values, even if the metric's own corpus score is not a mean. ``.best``
    measures only the caption that the scorer prefers for each picture: best-of-n reranking. An additional scorer
    (``eval_scorers``) measures the captions that the first scorer prefers.
    """
    if isinstance(metric, CaptionSetMetric):
        return []
    same = {each.name: getattr(metric, each.name) for each in fields(Metric)}
    same |= {"aliases": (), "families": (), "chance": None}

    def variant(suffix: str, **changes: Any) -> ChosenCaption:
        return ChosenCaption(**{**same, "name": metric.name + suffix, **changes})

    def oracle(context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement:
        measured = [metric.of_slot(context, slot) for slot in slots]
        values = [one.value_N for one in measured if one.value_N is not None]
        if not values:
            raise UsageError(f"{metric.name} does not score single captions, so it cannot select the best caption")
        extreme = np.fmin if (metric.direction or metric.oracle) == "lower" else np.fmax
        return Measurement(extreme.reduce(values), weight_N=measured[0].weight_N)

    return [
        variant(
            ORACLE,
            choose=oracle,
            signature=lambda context: f"best-of-captions,mean-of-pictures|{metric.variant(context)}",
            label=f"{metric.title}, best caption",
            help=f"{metric.help}; for each picture, uses the caption that this metric ranks best",
            needs=(*metric.needs, "several"),
        ),
        variant(
            BEST,
            choose=lambda context, slots: metric.of_slot(context, preferred(context, slots)),
            signature=lambda context: f"best-by:{(context.primary or context).scorer_name()}|{metric.variant(context)}",
            label=f"{metric.title}, the scorer’s choice",
            help=f"{metric.help}; for each picture, uses the caption that the scorer prefers",
            needs=tuple(dict.fromkeys((*metric.needs, "pictures", "scorer", "several"))),
        ),
    ]


def preferred(context: EvalContext, slots: Sequence[CaptionSlot]) -> CaptionSlot:
    """Selects, for each picture, the caption with the highest cosine according to the first scorer. On a tie,
    selects the earlier caption.
    """
    first = context.primary or context

    def choose() -> CaptionSlot:
        score_SN = np.stack([np.einsum("nd,nd->n", first.text_features(slot), first.images) for slot in slots])
        choice = [(row, slots[slot]) for row, slot in enumerate(score_SN.argmax(0))]
        references = [slot.references[row] for row, slot in choice if slot.references is not None]
        whole = len(references) == len(choice)
        return CaptionSlot([slot.captions[row] for row, slot in choice], references if whole else None)

    return first.once(("preferred", *map(id, slots)), choose)
