"""Captions and references to numbers. Nothing here loads torch; parts load on first use."""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "CiderD": "cider",
    "Difference": "significance",
    "Interval": "significance",
    "Results": "results",
    "associated_words": "words",
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
    "vocabulary": "lexical",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
