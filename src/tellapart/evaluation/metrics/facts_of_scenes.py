"""Metrics that use the exact ground truth of `scenes`: precision, recall, hallucinations, bindings, and
scene-graph F.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import PERCENT, Measurement, Sums
from tellapart.metrics.metric_info import KIND, TRUTH
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes import scene_graph
from tellapart.utils.registry import Direction


def truth_rate(above: str, below: str, kind: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the ratio, in percent, of two counts that are summed over captions: fields of
    `scenes.claims.ClaimCounts` or, for claims of one kind in `scenes.claims.FACT_KINDS`, of `scenes.claims.KindCounts`.
    """
    counts = [own.kinds[kind] if kind else own for own in context.claim_counts(slot)]
    counts_N2 = np.array([(getattr(own, above), getattr(own, below)) for own in counts], dtype=float)
    return Measurement(_percent(counts_N2), percentage(counts_N2))


def percentage(counts_N2: np.ndarray) -> Sums:
    """Computes 100 · summed first count / summed second count; NaN if the second sum is 0."""
    return Sums(counts_N2, _percent, bounds=(0.0, 100.0))


def _percent(counts_R2: np.ndarray) -> np.ndarray:
    above_R, below_R = counts_R2[..., 0], counts_R2[..., 1]
    return np.where(below_R > 0, 100 * above_R / np.where(below_R > 0, below_R, 1), np.nan)


_RATES: dict[str, tuple[str, str, str, str, Direction]] = {
    "attribute_precision": (
        "correct", "claims", "attribute precision", "% of a caption's claims that are true of the picture",
        "higher",
    ),
    "attribute_recall": (
        "recalled", "attributes", "attribute recall", "% of the picture's facts that captions state", "higher",
    ),
    "hallucination_rate": (
        "hallucinations", "claims", "hallucination",
        "% of a caption's claims whose value occurs nowhere in the picture",
        "lower",
    ),
    "binding_error_rate": (
        "binding_errors", "bound", "wrong bindings",
        "% of a caption's attributes that belong to another object in the picture", "lower",
    ),
}  # fmt: skip
for _name, (_above, _below, _label, _help, _better) in _RATES.items():
    context_metric(
        _name,
        needs=("truth",),
        signature=f"sum({_above})/sum({_below})|truth:scenes",
        label=_label,
        help=_help,
        direction=_better,
        group=TRUTH,
        aliases=("hallucination",) if _name == "hallucination_rate" else (),
    )(partial(truth_rate, _above, _below, ""))


_KIND_NAMES = {"shape": "object", "number": "count"}  # the names used in `facts_recall_object` and similar metrics
for _kind in ("shape", "colour", "size", "texture", "motion", "relation", "ground", "number"):
    for _name in ("attribute_precision", "attribute_recall"):
        if (_kind, _name) == ("number", "attribute_recall"):
            continue  # recall is undefined, because "three things" states no fact of its own
        _above, _below, _label, _help, _better = _RATES[_name]
        _shown = _KIND_NAMES.get(_kind, _kind)
        context_metric(
            f"{_name}_{_shown}",
            needs=("truth", "clips") if _kind == "motion" else ("truth",),
            signature=f"sum({_above})/sum({_below})|kind:{_kind}|truth:scenes",
            label=f"{_shown}: {_label.removeprefix('attribute ')} ",
            help=f"{_help}; counts only claims of this kind: {_shown}",
            direction=_better,
            group=KIND,
            bounds=PERCENT,
            families=("attributekinds",),
        )(partial(truth_rate, _above, _below, _kind))


@context_metric(
    "scene_graph_f",
    needs=("truth",),
    signature="f1|tuples:objects,attributes,relations,ground|truth:scenes",
    label="scene graph, F",
    help="F1 of the objects, attributes and relations that the caption and the picture share",
    direction="higher",
    group=TRUTH,
    bounds=PERCENT,
)
def scene_graph_f(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes a SPICE-like F-score of scene-graph tuples, × 100, with the scene's ground truth as the reference."""
    assert context.items is not None
    pairs = zip(slot.captions, context.items, strict=True)
    return Measurement(np.array([100 * scene_graph.scene_graph_f(caption, item.truth).f for caption, item in pairs]))
