"""Caption against picture: CLIPScore, RefCLIPScore and ClipSc, by the features of a scorer."""

from __future__ import annotations

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import METRICS, ContextMetric
from tellapart.evaluation.slots import Measurement, Slot
from tellapart.metrics import embedding
from tellapart.metrics.embedding import CLIPSCORE_PREFIX
from tellapart.metrics.results import CLOSE

_PREFIX = f"prefix:{CLIPSCORE_PREFIX.strip()}"


def clipscore(context: EvalContext, slot: Slot) -> Measurement:
    """CLIPScore ×100 (`tellapart.metrics.clipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    return Measurement(100 * embedding.clipscore(text_ND, context.images)[1])


def refclipscore(context: EvalContext, slot: Slot) -> Measurement:
    """RefCLIPScore ×100 (`tellapart.metrics.refclipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    references = context.reference_features(slot, CLIPSCORE_PREFIX)
    return Measurement(100 * embedding.refclipscore(text_ND, context.images, references)[1])


def clipsc(context: EvalContext, slot: Slot) -> Measurement:
    """100 · cosine (`tellapart.metrics.clipsc`)."""
    return Measurement(embedding.clipsc(context.text_features(slot), context.images)[1])


METRICS.register(
    ContextMetric(
        name="clipscore",
        factory=clipscore,
        needs=("pictures", "scorer"),
        signature=lambda context: f"2.5max(cos,0)x100|{_PREFIX}|scorer:{context.scorer_name()}",
        label="CLIPScore",
        help="likeness of caption and picture to the scorer: 250 · max(cosine, 0)",
        direction="higher",
        group=CLOSE,
        aliases=("clips",),
    )
)
METRICS.register(
    ContextMetric(
        name="refclipscore",
        factory=refclipscore,
        needs=("pictures", "scorer", "references"),
        signature=lambda context: (
            f"hmean(clipscore,max(cos(reference),0))x100|{_PREFIX}|scorer:{context.scorer_name()}"
        ),
        label="RefCLIPScore",
        help="CLIPScore and likeness to the nearest reference, harmonic mean",
        direction="higher",
        group=CLOSE,
        aliases=("refclips",),
    )
)
METRICS.register(
    ContextMetric(
        name="clipsc",
        factory=clipsc,
        needs=("pictures", "scorer"),
        signature=lambda context: f"100cos|prefix:none|scorer:{context.scorer_name()}",
        label="ClipSc",
        help="likeness of caption and picture to the scorer: 100 · cosine",
        direction="higher",
        group=CLOSE,
    )
)
