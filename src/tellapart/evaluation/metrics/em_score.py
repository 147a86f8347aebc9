"""EMScore against the frames of clips (Shi et al. 2022), ×100 as in paper 1."""

from __future__ import annotations

from functools import partial

from tellapart.evaluation.clip_frames import frames_seen
from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot

_PARTS = {
    "emscore_p": ("precision", "precision", "similarity of the caption's words to the frames nearest to them"),
    "emscore_r": ("recall", "recall", "similarity of the clip's frames to the words nearest to them"),
    "emscore_f": ("f", "F", "harmonic mean of EMScore's precision and recall"),
}


def emscore(part: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes EMScore's precision, recall or F (`tellapart.metrics.emscore`)."""
    return Measurement(slot.said_N * 100 * getattr(context.clips.emscore(slot), part)[1])


def emscore_variant(context: EvalContext) -> str:
    """Returns EMScore's settings as part of a signature."""
    assert context.items is not None
    frames = ",".join(sorted({str(frames_seen(item, context.loaded_scorer)) for item in context.items}))
    idf = f"{context.inputs.emscore_idf},padding-counted" if context.inputs.emscore_idf else "none"
    if context.inputs.emscore_idf == "references":
        idf += f"|references:{context.references_digest}"
    return f"idf:{idf}|frames:{frames}|tokens:with-start,end"


for _name, (_part, _label, _help) in _PARTS.items():
    context_metric(
        _name,
        needs=("pictures", "clips", "scorer", "tokens"),
        signature=lambda context: f"(coarse+fine)/2x100|{emscore_variant(context)}|scorer:{context.scorer_name()}",
        label=f"EMScore, {_label}",
        help=_help,
        direction="higher",
        group=CLOSE,
        families=("emscore",),
    )(partial(emscore, _part))
