"""CHAIR: objects in captions that neither the references nor COCO's instances (if given) contain."""

from __future__ import annotations

from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.facts.chair import Chair
from tellapart.evaluation.facts.coco_instances import names_in
from tellapart.evaluation.facts.verdict import Verdict, rate_statistic, rates
from tellapart.evaluation.metrics.fact_metric import each_verdict, fact_metric, rate
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.registry import on_request
from tellapart.metrics.slots import CaptionSlot


def by_objects(context: EvalContext, slot: CaptionSlot) -> list[Verdict]:
    """Verifies objects as CHAIR does, by comparing them with the objects in the references and, if given, in COCO's
    instances.
    """
    chair, instances = Chair(context.inputs.synonyms), context.inputs.instances
    names = iter(names_in(instances, context.ids, context.items))
    return each_verdict(
        context,
        slot,
        "chair",
        lambda caption, references: chair.verify(caption, references, instances.get(next(names), ())),
    )


def _objects(context: EvalContext) -> str:
    both = f"references,instances@{context.instances_digest}" if context.inputs.instances else "references"
    return f"objects:{both}|synonyms:{context.inputs.synonyms.name}"


chair_metric = partial(fact_metric, needs=("references", "synonyms"), check=on_request)


@chair_metric(
    "chair_i",
    signature=lambda context: f"wrong/named,sums|{_objects(context)}",
    label="CHAIR_i",
    help="% of objects in captions that the references (and instances) do not contain",
    direction="lower",
    aliases=("chair",),
)
def chair_i(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the percentage of hallucinated objects, from counts summed over captions."""
    verdicts = by_objects(context, slot)
    wrong_N4 = np.array([(v.claims - v.correct, v.claims, 0.0, 0.0) for v in verdicts])
    return Measurement(100 * (1 - rates(verdicts)[:, 0]), rate_statistic(wrong_N4, 0))


@chair_metric(
    "chair_s",
    signature=lambda context: f"captions-with-a-wrong-one|{_objects(context)}",
    label="CHAIR_s",
    help="% of captions with an object that the references (and instances) do not contain",
    direction="lower",
)
def hallucinates(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Returns 100 for each caption with a hallucinated object, and 0 for all other captions."""
    return Measurement(np.array([100.0 * (v.correct < v.claims) for v in by_objects(context, slot)]))


@chair_metric(
    "chair_coverage",
    signature=lambda context: f"named/there,sums|{_objects(context)}",
    label="coverage",
    help="% of the references' (and instances') objects that captions mention",
    aliases=("coverage", "cover"),
)
def chair_coverage(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the percentage of the references' objects that captions mention, from counts summed over captions."""
    return rate(by_objects, 1, context, slot)
