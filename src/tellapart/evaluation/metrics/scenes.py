"""Captions against the exact truth of `scenes`: precision, recall, hallucination, binding, scene-graph F."""

from __future__ import annotations

from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import METRICS, ContextMetric
from tellapart.evaluation.slots import Corpus, Measurement, Slot
from tellapart.metrics.resampling import SummedStatistic
from tellapart.metrics.results import TRUTH
from tellapart.metrics.significance import PERCENT
from tellapart.utils.registry import Direction


def rate(above: str, below: str, context: EvalContext, slot: Slot) -> Measurement:
    """Percent: one count of `scenes.truth.ClaimCounts` over another, both summed over captions before dividing."""
    counts_N2 = np.array([(getattr(c, above), getattr(c, below)) for c in context.claim_counts(slot)], dtype=float)
    with np.errstate(invalid="ignore"):
        value_N = 100 * counts_N2[:, 0] / counts_N2[:, 1]
    return Measurement(value_N, Corpus(list(counts_N2), percentage))


def percentage(rows: list[np.ndarray]) -> SummedStatistic:
    """100 · summed first count / summed second count of rows of two counts; NaN where the second is 0."""
    return SummedStatistic(np.array(rows), _percent, bounds=(0.0, 100.0))


def _percent(counts_R2: np.ndarray) -> np.ndarray:
    above_R, below_R = counts_R2[..., 0], counts_R2[..., 1]
    return np.where(below_R > 0, 100 * above_R / np.where(below_R > 0, below_R, 1), np.nan)


def scene_graph_f(context: EvalContext, slot: Slot) -> Measurement:
    """F of scene-graph tuples × 100 in the manner of SPICE, with the scene's own truth for references."""
    from tellapart.scenes.truth import scene_graph_f

    assert context.items is not None
    pairs = zip(slot.captions, context.items, strict=True)
    return Measurement(np.array([100 * scene_graph_f(caption, item.truth).f for caption, item in pairs]))


def _register_rate(
    name: str, above: str, below: str, label: str, help: str, direction: Direction, aliases: tuple[str, ...] = ()
) -> None:
    METRICS.register(
        ContextMetric(
            name=name,
            factory=partial(rate, above, below),
            needs=("truth",),
            signature=f"sum({above})/sum({below})|truth:scenes",
            label=label,
            help=help,
            direction=direction,
            group=TRUTH,
            aliases=aliases,
        )
    )


_register_rate(
    "attribute_precision",
    "correct",
    "claims",
    "attribute precision",
    "per cent of what captions claim that is true of the picture",
    "higher",
)
_register_rate(
    "attribute_recall",
    "recalled",
    "attributes",
    "attribute recall",
    "per cent of what is to be seen that captions name",
    "higher",
)
_register_rate(
    "hallucination_rate",
    "hallucinations",
    "claims",
    "hallucination",
    "per cent of what captions claim that is not in the picture",
    "lower",
    aliases=("hallucination",),
)
_register_rate(
    "binding_error_rate",
    "binding_errors",
    "bound",
    "wrong bindings",
    "per cent of attributes that are there, but on another object",
    "lower",
)
METRICS.register(
    ContextMetric(
        name="scene_graph_f",
        factory=scene_graph_f,
        needs=("truth",),
        signature="f1|tuples:objects,attributes,relations,ground|truth:scenes",
        label="scene graph, F",
        help="objects, attributes and relations that caption and picture share, out of 100",
        direction="higher",
        group=TRUTH,
        bounds=PERCENT,
    )
)
