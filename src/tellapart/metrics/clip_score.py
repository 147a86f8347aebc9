"""CLIPScore, RefCLIPScore and "ClipSc", which are based on cosines between a caption and its picture or references.

All are pure functions of numpy arrays with L2-normalized rows and return ``(corpus, per_caption_N)``, where the corpus
score is the mean. `tellapart.evaluation.metrics.clip_score` multiplies by 100, as the papers do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.metrics.corpus_scores import with_mean

CLIPSCORE_PREFIX = "A photo depicts "
CLIPSCORE_WEIGHT = 2.5


def clipscore(text_ND: np.ndarray, image_ND: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes 2.5·max(cos, 0), 0 to 2.5 (Hessel et al. 2021). Captions must be encoded with the prefix "A photo
    depicts ".
    """
    return with_mean(CLIPSCORE_WEIGHT * np.maximum(_cosine(text_ND, image_ND), 0))


def clipsc(text_ND: np.ndarray, image_ND: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes 100·cos, −100 to 100, without prefix, factor or clipping: the "ClipSc" in paper 2's tables."""
    return with_mean(100 * _cosine(text_ND, image_ND))


def refclipscore(
    text_ND: np.ndarray, image_ND: np.ndarray, reference_RD: Sequence[np.ndarray]
) -> tuple[float, np.ndarray]:
    """Computes the harmonic mean of CLIPScore and max(largest cosine with a reference, 0) (Hessel et al. 2021).

    ``reference_RD``: the features of each caption's references, encoded with the same prefix. The score is 0 if either
        term is 0, and at most 10/7, because only CLIPScore has a factor of 2.5.
    """
    score_N = clipscore(text_ND, image_ND)[1]
    pairs = zip(text_ND, reference_RD, strict=True)
    near_N = np.array([max(0.0, float((held_RD @ text_D).max())) for text_D, held_RD in pairs], dtype=float)
    sum_N = score_N + near_N
    return with_mean(np.where(sum_N > 0, 2 * score_N * near_N / np.where(sum_N > 0, sum_N, 1), 0))


def _cosine(text_ND: np.ndarray, image_ND: np.ndarray) -> np.ndarray:
    cosine_N: np.ndarray = np.einsum("nd,nd->n", text_ND, image_ND)
    return cosine_N
