"""EMScore (Shi et al. 2022): how well a caption matches the frames of a clip, as a whole and word by word.

The functions are pure and take arrays with L2-normalized rows. `tellapart.evaluation.metrics.em_score` provides the
features.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tellapart.metrics.corpus_scores import with_mean


class EMScore(NamedTuple):
    """Precision, recall and F, each as ``(corpus, per_caption_N)``."""

    precision: tuple[float, np.ndarray]
    recall: tuple[float, np.ndarray]
    f: tuple[float, np.ndarray]


def emscore(
    text_ND: np.ndarray,
    token_TD: Sequence[np.ndarray],
    frame_FD: Sequence[np.ndarray],
    weight_T: Sequence[np.ndarray] | None = None,
) -> EMScore:
    """Computes EMScore(X, V) for clips (Shi et al. 2022), the mean of a coarse and a fine match, −1 to 1.

    The coarse match is the cosine between the caption's feature and the mean frame feature. In the fine match,
    precision matches each token with its nearest frame, weighted by ``weight_T`` (idf weights; None means equal
    weights), recall matches each frame with its nearest token, and F is their harmonic mean. The tokens are those of
    the encoder, including start and end tokens. Precision and F are NaN if all weights are 0; F is also NaN if
    precision and recall cancel out.
    """
    rows = []
    for number, (text_D, words_TD, seen_FD) in enumerate(zip(text_ND, token_TD, frame_FD, strict=True)):
        mean_D = seen_FD.mean(0)
        coarse = float(text_D @ mean_D / max(float(np.linalg.norm(mean_D)), 1e-12))
        cosine_TF, worth_T = words_TD @ seen_FD.T, _weights(words_TD, weight_T, number)
        precision = float(worth_T @ cosine_TF.max(1) / worth_T.sum()) if worth_T.sum() > 0 else math.nan
        recall = float(cosine_TF.max(0).mean())
        both = precision + recall
        fine = (precision, recall, 2 * precision * recall / both if both else math.nan)
        rows.append([(value + coarse) / 2 for value in fine])
    value_N3 = np.array(rows, dtype=float).reshape(-1, 3)
    return EMScore(*map(with_mean, value_N3.T))


def emscore_f_rows(
    text_ND: np.ndarray,
    token_TD: Sequence[np.ndarray],
    frame_FD: Sequence[np.ndarray],
    weight_T: Sequence[np.ndarray] | None = None,
) -> Iterator[np.ndarray]:
    """For each of N captions, yields its EMScore F with each of M clips. Paper 1 ranks the clips by this score.

    The arguments are those of `emscore`.
    """
    mean_MD = np.stack([seen_FD.mean(0) for seen_FD in frame_FD])
    mean_MD = mean_MD / np.maximum(np.linalg.norm(mean_MD, axis=1, keepdims=True), 1e-12)
    all_FD, size_M = np.concatenate(list(frame_FD)), np.array([len(seen_FD) for seen_FD in frame_FD])
    start_M = np.cumsum(size_M) - size_M
    for number, (text_D, words_TD) in enumerate(zip(text_ND, token_TD, strict=True)):
        cosine_TF, worth_T = words_TD @ all_FD.T, _weights(words_TD, weight_T, number)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision_M = worth_T @ np.maximum.reduceat(cosine_TF, start_M, axis=1) / worth_T.sum()
            recall_M = np.add.reduceat(cosine_TF.max(0), start_M) / size_M
            fine_M = 2 * precision_M * recall_M / (precision_M + recall_M)
        yield (fine_M + mean_MD @ text_D) / 2


def _weights(words_TD: np.ndarray, weight_T: Sequence[np.ndarray] | None, number: int) -> np.ndarray:
    return np.ones(len(words_TD)) if weight_T is None else np.asarray(weight_T[number], dtype=float)


def token_idf(
    documents: Sequence[Sequence[int]], end: int, *, padding: int | None = 0, window: int = 77
) -> Mapping[int, float]:
    """Computes token weights for `emscore`: log((M + 1) / (df + 1)) over M texts, given as token ids.

    An unseen token gets the weight log(M + 1). The end token, which is in every text and represents the whole caption,
    gets the mean weight of all seen tokens. As in EMScore's code, texts are padded to ``window`` with the token
    ``padding``, which counts as a seen token and enters the mean. For CLIP's tokenizer this token is 0, which also
    stands for "!", so the weight of "!" is close to 0. ``padding=None`` disables padding.
    """
    seen = Counter(token for row in documents for token in set(row))
    padded = sum(len(row) < window and padding not in row for row in documents)
    if padding is not None and padded:
        seen[padding] += padded
    found = {token: math.log((len(documents) + 1) / (count + 1)) for token, count in seen.items()}
    if found:
        found[end] = sum(found.values()) / len(found)
    return _Idf(found, math.log(len(documents) + 1))


class _Idf(dict[int, float]):
    def __init__(self, found: Mapping[int, float], unseen: float) -> None:
        super().__init__(found)
        self.unseen = unseen

    def __missing__(self, token: int) -> float:
        return self.unseen
