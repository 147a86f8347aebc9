"""Perplexity of captions under a causal language model: the mean over captions, and the perplexity of the whole
corpus.
"""

from __future__ import annotations

import math

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.metrics.corpus_scores import Measurement, Sums
from tellapart.metrics.metric_info import LANGUAGE
from tellapart.metrics.perplexity import of_counts
from tellapart.metrics.registry import context_metric
from tellapart.metrics.slots import CaptionSlot


@context_metric(
    "ppl",
    needs=("language_model",),
    signature=lambda context: f"mean(exp(nll/tokens))|{context.loaded_language_model.signature}",
    label="perplexity",
    help="perplexity of a caption under a language model, averaged over captions",
    group=LANGUAGE,
    aliases=("perplexity",),
    oracle="lower",
    bounds=(0.0, math.inf),
)
def ppl(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the exponential of each caption's mean token loss."""
    return Measurement(of_counts(context.token_losses(slot)))


@context_metric(
    "ppl_corpus",
    needs=("language_model",),
    signature=lambda context: f"exp(sum(nll)/sum(tokens))|{context.loaded_language_model.signature}",
    label="perplexity, corpus",
    help="perplexity of all captions together under a language model",
    group=LANGUAGE,
)
def ppl_corpus(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the exponential of the mean loss over all tokens."""
    return Measurement(None, corpus_perplexity(context.token_losses(slot)))


def corpus_perplexity(loss_N2: np.ndarray) -> Sums:
    """Returns exp(total loss / total tokens), given rows of (loss, tokens)."""
    return Sums(loss_N2, lambda loss_R2: of_counts(loss_R2.reshape(-1, 2)).reshape(loss_R2.shape[:-1]))
