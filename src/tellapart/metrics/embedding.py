"""Embedding-based metrics: CLIPScore, RefCLIPScore, "ClipSc" and EMScore, on features of a dual encoder.

Pure functions of numpy arrays with unit rows, ``-> (corpus, per_caption_N)``; the corpus score is the mean.
`tellapart.evaluation.context` and the commands provide the features and multiply by 100 as the papers do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tellapart.metrics.ptb import check

CLIPSCORE_PREFIX = "A photo depicts "
CLIPSCORE_WEIGHT = 2.5


def clipscore(text_ND: np.ndarray, image_ND: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes 2.5·max(cos, 0), 0 to 2.5 (Hessel et al. 2021). Texts must be encoded with prefix "A photo depicts "."""
    return _with_mean(CLIPSCORE_WEIGHT * np.maximum(_cosine(text_ND, image_ND), 0))


def clipsc(text_ND: np.ndarray, image_ND: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes 100·cos, −100 to 100, without prefix, factor or clipping: the "ClipSc" of paper 2's tables."""
    return _with_mean(100 * _cosine(text_ND, image_ND))


def refclipscore(
    text_ND: np.ndarray, image_ND: np.ndarray, reference_RD: Sequence[np.ndarray]
) -> tuple[float, np.ndarray]:
    """Computes the harmonic mean of CLIPScore and max(largest cosine with a reference, 0) (Hessel et al. 2021).

    ``reference_RD``: features of each caption's references, encoded with the same prefix. The score is 0 if either term
    is 0. Its range is 0 to 10/7, because CLIPScore has a factor of 2.5 and the cosine has none.
    """
    score_N = clipscore(text_ND, image_ND)[1]
    pairs = zip(text_ND, reference_RD, strict=True)
    near_N = np.array([max(0.0, float((held_RD @ text_D).max())) for text_D, held_RD in pairs], dtype=float)
    sum_N = score_N + near_N
    return _with_mean(np.where(sum_N > 0, 2 * score_N * near_N / np.where(sum_N > 0, sum_N, 1), 0))


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
    """Computes EMScore(X, V) of clips (Shi et al. 2022), the mean of a coarse and a fine matching, −1 to 1.

    The coarse match is the cosine of the caption's feature with the mean frame feature. In the fine match, precision
    matches each token with its nearest frame, weighted by ``weight_T`` (idf; None: uniform), recall matches each frame
    with its nearest token, and F is their harmonic mean. Tokens are the encoder's, including start and end. NaN if all
    weights are 0; F is also NaN if precision and recall cancel out.
    """
    rows = []
    for number, (text_D, words_TD, seen_FD) in enumerate(zip(text_ND, token_TD, frame_FD, strict=True)):
        mean_D = seen_FD.mean(0)
        coarse = float(text_D @ mean_D / max(float(np.linalg.norm(mean_D)), 1e-12))
        cosine_TF = words_TD @ seen_FD.T
        worth_T = np.ones(len(words_TD)) if weight_T is None else np.asarray(weight_T[number], dtype=float)
        precision = float(worth_T @ cosine_TF.max(1) / worth_T.sum()) if worth_T.sum() > 0 else math.nan
        recall = float(cosine_TF.max(0).mean())
        both = precision + recall
        fine = (precision, recall, 2 * precision * recall / both if both else math.nan)
        rows.append([(value + coarse) / 2 for value in fine])
    value_N3 = np.array(rows, dtype=float).reshape(-1, 3)
    return EMScore(*(_with_mean(value_N3[:, column]) for column in range(3)))


def emscore_f_rows(
    text_ND: np.ndarray,
    token_TD: Sequence[np.ndarray],
    frame_FD: Sequence[np.ndarray],
    weight_T: Sequence[np.ndarray] | None = None,
) -> Iterator[np.ndarray]:
    """Yields EMScore's F of each of N captions with all M clips, a row of M values, by which paper 1 ranks clips.

    The other arguments are those of `emscore`.
    """
    mean_MD = np.stack([seen_FD.mean(0) for seen_FD in frame_FD])
    mean_MD = mean_MD / np.maximum(np.linalg.norm(mean_MD, axis=1, keepdims=True), 1e-12)
    all_FD, size_M = np.concatenate(list(frame_FD)), np.array([len(seen_FD) for seen_FD in frame_FD])
    start_M = np.cumsum(size_M) - size_M
    for number, (text_D, words_TD) in enumerate(zip(text_ND, token_TD, strict=True)):
        cosine_TF = words_TD @ all_FD.T
        worth_T = np.ones(len(words_TD)) if weight_T is None else np.asarray(weight_T[number], dtype=float)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision_M = worth_T @ np.maximum.reduceat(cosine_TF, start_M, axis=1) / worth_T.sum()
            recall_M = np.add.reduceat(cosine_TF.max(0), start_M) / size_M
            fine_M = 2 * precision_M * recall_M / (precision_M + recall_M)
        yield (fine_M + mean_MD @ text_D) / 2


def token_idf(
    documents: Sequence[Sequence[int]], end: int, *, padding: int | None = 0, window: int = 77
) -> Mapping[int, float]:
    """Computes token weights for `emscore`: log((M + 1) / (df + 1)) over M texts as token ids.

    An unseen token weighs log(M + 1). The end token, which is in every text and represents the whole caption, gets the
    mean weight of all seen tokens. As in EMScore's code, texts are padded to ``window`` with the token ``padding``
    (0 in CLIP's tokenizer, which is also its "!"), and padding counts as a seen token: it enters the mean, and "!"
    weighs next to nothing. ``padding=None`` leaves it out.
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


def _cosine(text_ND: np.ndarray, image_ND: np.ndarray) -> np.ndarray:
    cosine_N: np.ndarray = np.einsum("nd,nd->n", text_ND, image_ND)
    return cosine_N


def _with_mean(value_N: np.ndarray) -> tuple[float, np.ndarray]:
    kept_N = value_N[~np.isnan(value_N)]
    return (float(kept_N.mean()) if len(kept_N) else math.nan), value_N


# BERTScore (Zhang et al. 2020): tokens of a caption and of a reference, each matched with its nearest in the other.
#
# `bertscore` implements the formula on a text encoder's token features; `tellapart.evaluation.text_models` loads one.

References = Sequence[Sequence[str]]


class TokenFeatures(NamedTuple):
    """Unit features of a text's tokens, including special ones, and the weight of each token (0 for special ones)."""

    feature_TD: np.ndarray
    weight_T: np.ndarray


class TokenEncoder(Protocol):
    """A text encoder that returns a feature for each token."""

    def token_features(self, texts: Sequence[str]) -> list[TokenFeatures]: ...


class BERTScore(NamedTuple):
    """Precision, recall and F1, each as ``(corpus, per_caption_N)``; the corpus score is the mean."""

    precision: tuple[float, np.ndarray]
    recall: tuple[float, np.ndarray]
    f: tuple[float, np.ndarray]


def bertscore(captions: Sequence[str], references: References, *, model: TokenEncoder) -> BERTScore:
    """Computes BERTScore without idf weights and rescaling, −1 to 1 (mostly 0 to 1).

    Each of the three numbers takes its own maximum over the references, as in the package bert-score. A text without
    words scores 0. Raises `UsageError` if a caption has no list of references.
    """
    check(captions, references)
    texts = list(dict.fromkeys([*captions, *(text for reference_texts in references for text in reference_texts)]))
    known = dict(zip(texts, model.token_features(texts), strict=True))
    rows = [
        np.max([_of_pair(known[caption], known[text]) for text in reference_texts], axis=0)
        for caption, reference_texts in zip(captions, references, strict=True)
    ]
    value_N3 = np.array(rows, dtype=float).reshape(-1, 3)
    return BERTScore(*((_mean(value_N), value_N) for value_N in value_N3.T))


def _of_pair(caption: TokenFeatures, reference: TokenFeatures) -> tuple[float, float, float]:
    """Computes precision, recall and F1 (Zhang et al. 2020, section 3)."""
    if not caption.weight_T.sum() or not reference.weight_T.sum():
        return 0.0, 0.0, 0.0
    cosine_TR = caption.feature_TD @ reference.feature_TD.T
    precision = float(caption.weight_T @ cosine_TR.max(1) / caption.weight_T.sum())
    recall = float(reference.weight_T @ cosine_TR.max(0) / reference.weight_T.sum())
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _mean(value_N: np.ndarray) -> float:
    return float(value_N.mean()) if len(value_N) else math.nan
