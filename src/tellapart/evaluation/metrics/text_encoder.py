"""BERTScore against the references (Zhang et al. 2020), ×100."""

from __future__ import annotations

from functools import partial

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import METRICS, ContextMetric
from tellapart.evaluation.slots import Measurement, Slot
from tellapart.metrics.results import CLOSE

_PARTS = {
    "bertscore_p": ("precision", "precision", (), "likeness of the caption's tokens to the references' nearest"),
    "bertscore_r": ("recall", "recall", (), "likeness of the references' tokens to the caption's nearest"),
    "bertscore_f": ("f", "F1", ("bertscoref1",), "harmonic mean of BERTScore's two matchings of tokens"),
}


def bertscore(part: str, context: EvalContext, slot: Slot) -> Measurement:
    """One of precision, recall and F1 (`tellapart.metrics.bertscore`)."""
    return Measurement(100 * getattr(context.bertscore(slot), part)[1])


for _name, (_part, _label, _aliases, _help) in _PARTS.items():
    METRICS.register(
        ContextMetric(
            name=_name,
            factory=partial(bertscore, _part),
            needs=("references", "text_encoder"),
            signature=lambda context: f"best-reference|{context.loaded_text_encoder.signature}",
            label=f"BERTScore, {_label}",
            help=_help,
            direction="higher",
            group=CLOSE,
            aliases=_aliases,
            families=("bertscore",),
        )
    )
