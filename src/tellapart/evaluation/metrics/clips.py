"""EMScore against the frames of clips (Shi et al. 2022), ×100 as paper 1 prints it."""

from __future__ import annotations

from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import METRICS, ContextMetric
from tellapart.evaluation.slots import Measurement, Slot
from tellapart.metrics.results import CLOSE

_PARTS = {
    "emscore_p": ("precision", "precision", "likeness of the caption's words to their nearest frames"),
    "emscore_r": ("recall", "recall", "likeness of the clip's frames to their nearest words"),
    "emscore_f": ("f", "F", "harmonic mean of EMScore's two matchings of words and frames"),
}


def emscore(part: str, context: EvalContext, slot: Slot) -> Measurement:
    """One of precision, recall and F (`tellapart.metrics.emscore`)."""
    return Measurement(100 * getattr(context.clips.emscore(slot), part)[1])


def emscore_variant(context: EvalContext) -> str:
    """How EMScore is computed here, for signatures."""
    assert context.items is not None
    frames = ",".join(sorted({str(context.clips.frames_of(item)) for item in context.items}))
    idf = f"{context.emscore_idf},padding-counted" if context.emscore_idf else "none"
    return f"idf:{idf}|frames:{frames}|tokens:with-start,end"


for _name, (_part, _label, _help) in _PARTS.items():
    METRICS.register(
        ContextMetric(
            name=_name,
            factory=partial(emscore, _part),
            needs=("pictures", "clips", "scorer", "tokens"),
            signature=lambda context: f"(coarse+fine)/2x100|{emscore_variant(context)}|scorer:{context.scorer_name()}",
            label=f"EMScore, {_label}",
            help=_help,
            direction="higher",
            group=CLOSE,
            families=("emscore",),
        )
    )
