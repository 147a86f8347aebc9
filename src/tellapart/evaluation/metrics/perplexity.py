"""Perplexity of captions under a causal language model: the mean over captions, and of the corpus."""

from __future__ import annotations

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.registry import METRICS, ContextMetric
from tellapart.evaluation.slots import Corpus, Measurement, Slot
from tellapart.metrics.perplexity import of_counts
from tellapart.metrics.resampling import SummedStatistic
from tellapart.metrics.results import LANGUAGE


def ppl(context: EvalContext, slot: Slot) -> Measurement:
    """exp of the mean loss of each caption's tokens."""
    return Measurement(of_counts(context.token_losses(slot)))


def ppl_corpus(context: EvalContext, slot: Slot) -> Measurement:
    """exp of the mean loss of all tokens."""
    return Measurement(None, Corpus(list(context.token_losses(slot)), corpus_perplexity))


def corpus_perplexity(rows: list[np.ndarray]) -> SummedStatistic:
    """exp(summed loss / summed tokens) of rows of (loss, tokens)."""
    return SummedStatistic(
        np.array(rows), lambda loss_R2: of_counts(loss_R2.reshape(-1, 2)).reshape(loss_R2.shape[:-1])
    )


METRICS.register(
    ContextMetric(
        name="ppl",
        factory=ppl,
        needs=("language_model",),
        signature=lambda context: f"mean(exp(nll/tokens))|{context.loaded_language_model.signature}",
        label="perplexity",
        help="how little a language model expects the caption: mean over captions",
        group=LANGUAGE,
        aliases=("perplexity",),
        oracle="lower",
    )
)
METRICS.register(
    ContextMetric(
        name="ppl_corpus",
        factory=ppl_corpus,
        needs=("language_model",),
        signature=lambda context: f"exp(sum(nll)/sum(tokens))|{context.loaded_language_model.signature}",
        label="perplexity, corpus",
        help="how little a language model expects the words of all captions",
        group=LANGUAGE,
    )
)
