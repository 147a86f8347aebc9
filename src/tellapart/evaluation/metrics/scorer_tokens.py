"""The number of tokens per caption, counted with the scorer's tokenizer."""

from __future__ import annotations

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.metric_info import LANGUAGE
from tellapart.metrics.registry import context_metric, on_request
from tellapart.metrics.slots import CaptionSlot


@context_metric(
    "tokens",
    needs=("pictures", "scorer"),
    signature=lambda context: f"tokens:with-start,end|scorer:{context.scorer_name()}",
    label="tokens",
    help="tokens per caption in the scorer's tokenizer, including start and end; computed only if requested by name",
    group=LANGUAGE,
    check=on_request,
)
def tokens(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the number of tokens per caption, without truncation (paper 2, Table 9)."""
    return Measurement(np.array(context.loaded_scorer.lengths(slot.captions), dtype=float))
