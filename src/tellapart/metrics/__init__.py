"""Captions and references to numbers. Nothing here loads torch; parts load on first use."""

from __future__ import annotations

from tellapart.utils.lazy import lazily

_WHERE = {
    "CiderD": "cider",
    "Difference": "significance",
    "Interval": "significance",
    "Results": "results",
    "associated_words": "words",
    "bertscore": "bert_score",
    "bleu": "overlap",
    "cider_plain": "cider",
    "cider_d": "cider",
    "clipsc": "embedding",
    "clipscore": "embedding",
    "div1": "diversity",
    "div2": "diversity",
    "emscore": "embedding",
    "length": "lexical",
    "lexical_diversity": "lexical",
    "mbleu": "diversity",
    "mean_interval": "significance",
    "meteor": "meteor_score",
    "paired_difference": "significance",
    "paired_resampled": "significance",
    "ppl": "perplexity",
    "ptb_tokenize": "tokenizer",
    "refclipscore": "embedding",
    "repetition_rate": "lexical",
    "resample": "significance",
    "rouge_l": "overlap",
    "spice": "spice_tool",
    "spider": "spider_score",
    "vocabulary": "lexical",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
