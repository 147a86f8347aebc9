"""BERTScore: how similar captions are to their references, measured with token features."""

from __future__ import annotations

from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot

_PARTS = {
    "bertscore_p": (
        "precision",
        "precision",
        (),
        "similarity of the caption's tokens to the nearest tokens in the references",
    ),
    "bertscore_r": (
        "recall",
        "recall",
        (),
        "similarity of the references' tokens to the nearest tokens in the caption",
    ),
    "bertscore_f": ("f", "F1", ("bertscoref1",), "harmonic mean of BERTScore's precision and recall"),
}


def bertscore(part: str, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes BERTScore's precision, recall or F1 (`tellapart.metrics.bertscore`)."""
    return Measurement(100 * getattr(context.bertscore(slot), part)[1])


for _name, (_part, _label, _aliases, _help) in _PARTS.items():
    context_metric(
        _name,
        needs=("references", "text_encoder"),
        signature=lambda context: f"best-reference|{context.loaded_text_encoder.signature}",
        label=f"BERTScore, {_label}",
        help=_help,
        direction="higher",
        group=CLOSE,
        aliases=_aliases,
        families=("bertscore",),
    )(partial(bertscore, _part))
