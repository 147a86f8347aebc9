"""ROUGE-L as the COCO tools compute it, on captions tokenized with the tools' PTB tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.metrics.corpus_scores import PERCENT, with_mean
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, tokenized
from tellapart.metrics.registry import metric

ROUGE_SIGNATURE = f"coco|beta:1.2|max-precision,max-recall|tok:{VERSION}"
_BETA = 1.2


@metric(
    "rouge_l",
    signature=ROUGE_SIGNATURE,
    label="ROUGE-L",
    help="longest word sequence in common with a reference",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    aliases=("rouge",),
)
def rouge_l(captions: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Computes ROUGE-L (Lin 2004) with β = 1.2, 0 to 1. Returns the mean and each caption's score.

    Like the COCO tools, combines the best precision and the best recall, which may come from different references. An
    empty text counts as one empty word, so an empty caption matches an empty reference.
    """
    return rouge_of_tokens(*tokenized(captions, references))


def rouge_of_tokens(caption_tokens: list[str], reference_texts: list[list[str]]) -> tuple[float, np.ndarray]:
    """Computes `rouge_l` from tokenized texts, in which single spaces separate the tokens."""
    score_N = np.array(
        [_rouge(caption.split(" "), texts) for caption, texts in zip(caption_tokens, reference_texts, strict=True)]
    )
    return with_mean(score_N)


def _rouge(caption: list[str], references: Sequence[str]) -> float:
    place: dict[str, int] = {}  # each word's positions in the caption, as bits
    for number, word in enumerate(caption):
        place[word] = place.get(word, 0) | 1 << number
    precision = recall = 0.0
    for reference in references:
        words = reference.split(" ")
        common = _common(place, len(caption), words)
        precision, recall = max(precision, common / len(caption)), max(recall, common / len(words))
    if not precision:
        return 0.0
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _common(place: dict[str, int], length: int, words: Sequence[str]) -> int:
    """Computes the length of the longest common subsequence. Stores a row as the bits of one integer (Hyyrö 2004)."""
    full = (1 << length) - 1
    row = full
    for word in words:
        match = place.get(word)
        if match:
            row = (row + (row & match)) | (row & ~match)
    return length - (row & full).bit_count()
