"""Computes metrics from captions and references. Does not import torch, and imports each module on first use."""

from __future__ import annotations

from tellapart.utils.lazy_names import lazily

_WHERE = {
    "CiderD": "cider",
    "Difference": "paired_tests",
    "Interval": "intervals",
    "Results": "results",
    "associated_words": "typical_words",
    "bertscore": "bert_score",
    "bleu": "bleu_score",
    "cider_plain": "cider",
    "cider_d": "cider",
    "clipsc": "clip_score",
    "clipscore": "clip_score",
    "div1": "diversity",
    "div2": "diversity",
    "emscore": "em_score",
    "length": "lexical",
    "lexical_diversity": "lexical",
    "mbleu": "diversity",
    "mean_interval": "intervals",
    "meteor": "meteor_score",
    "metric": "registry",
    "paired_difference": "paired_tests",
    "ppl": "perplexity",
    "ptb_tokenize": "ptb",
    "refclipscore": "clip_score",
    "repetition_rate": "lexical",
    "rouge_l": "rouge_score",
    "spice": "spice_score",
    "spider": "spider_score",
    "vocabulary": "lexical",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
