"""CLIPScore, RefCLIPScore and ClipSc: similarity of caption and picture by a scorer's features."""

from __future__ import annotations

from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.metrics import clip_score
from tellapart.metrics.clip_score import CLIPSCORE_PREFIX
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot

clip_metric = partial(context_metric, needs=("pictures", "scorer"), direction="higher", group=CLOSE)
_PREFIX = f"prefix:{CLIPSCORE_PREFIX.strip()}"


@clip_metric(
    "clipscore",
    signature=lambda context: f"2.5max(cos,0)x100|{_PREFIX}|scorer:{context.scorer_name()}",
    label="CLIPScore",
    help="similarity between caption and picture according to the scorer: 250 · max(cosine, 0)",
    aliases=("clips",),
)
def clipscore(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CLIPScore ×100 (`tellapart.metrics.clipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    return Measurement(slot.said_N * 100 * clip_score.clipscore(text_ND, context.images)[1])


@clip_metric(
    "refclipscore",
    needs=("pictures", "scorer", "references"),
    signature=lambda context: f"hmean(clipscore,max(cos(reference),0))x100|{_PREFIX}|scorer:{context.scorer_name()}",
    label="RefCLIPScore",
    help="harmonic mean of CLIPScore and the similarity to the nearest reference",
    aliases=("refclips",),
)
def refclipscore(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes RefCLIPScore ×100 (`tellapart.metrics.refclipscore`)."""
    text_ND = context.text_features(slot, CLIPSCORE_PREFIX)
    references = context.reference_features(slot, CLIPSCORE_PREFIX)
    return Measurement(slot.said_N * 100 * clip_score.refclipscore(text_ND, context.images, references)[1])


@clip_metric(
    "clipsc",
    signature=lambda context: f"100cos|prefix:none|scorer:{context.scorer_name()}",
    label="ClipSc",
    help="similarity between caption and picture according to the scorer: 100 · cosine",
)
def clipsc(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes 100 · cosine (`tellapart.metrics.clipsc`)."""
    return Measurement(slot.said_N * clip_score.clipsc(context.text_features(slot), context.images)[1])
