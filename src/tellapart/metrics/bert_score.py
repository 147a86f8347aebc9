"""BERTScore (Zhang et al. 2020): matches each token in the caption with the nearest token in the reference, and vice
versa.

`bertscore` implements the formula on a text encoder's token features; `tellapart.evaluation.text_encoder` loads one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tellapart.metrics.corpus_scores import with_mean
from tellapart.metrics.inputs import References, check


class TokenFeatures(NamedTuple):
    """The L2-normalized features of a text's tokens and the tokens' weights. Special tokens are included with
    weight 0.
    """

    feature_TD: np.ndarray
    weight_T: np.ndarray


TokenEncoder = Callable[[list[str]], Sequence[TokenFeatures]]


class BERTScore(NamedTuple):
    """Precision, recall and F1, each as ``(corpus, per_caption_N)``. The corpus score is the mean."""

    precision: tuple[float, np.ndarray]
    recall: tuple[float, np.ndarray]
    f: tuple[float, np.ndarray]


def bertscore(captions: Sequence[str], references: References, *, encode: TokenEncoder) -> BERTScore:
    """Computes BERTScore without idf weights or rescaling. Scores range from −1 to 1, but are mostly between 0 and 1.

    Precision, recall and F1 are each maximized over the references separately, as in the bert-score package. A text
    without words scores 0. Raises `UsageError` if a caption has no list of references.
    """
    check(captions, references)
    texts = list(dict.fromkeys([*captions, *(text for reference_texts in references for text in reference_texts)]))
    known = dict(zip(texts, encode(texts), strict=True))
    rows = [
        np.max([_of_pair(known[caption], known[text]) for text in reference_texts], axis=0)
        for caption, reference_texts in zip(captions, references, strict=True)
    ]
    value_N3 = np.array(rows, dtype=float).reshape(-1, 3)
    return BERTScore(*map(with_mean, value_N3.T))


def _of_pair(caption: TokenFeatures, reference: TokenFeatures) -> tuple[float, float, float]:
    """Computes precision, recall and F1 (Zhang et al. 2020, section 3)."""
    if not caption.weight_T.sum() or not reference.weight_T.sum():
        return 0.0, 0.0, 0.0
    cosine_TR = caption.feature_TD @ reference.feature_TD.T
    precision = float(caption.weight_T @ cosine_TR.max(1) / caption.weight_T.sum())
    recall = float(reference.weight_T @ cosine_TR.max(0) / reference.weight_T.sum())
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0
