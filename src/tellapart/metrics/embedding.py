"""Metrics of embeddings: CLIPScore, RefCLIPScore, "ClipSc" and EMScore, on features that a dual encoder gave.

Pure functions of numpy arrays with unit rows, ``-> (corpus, per_caption_N)``, the corpus number being the mean.
Where the features come from, and ×100 as the papers print it, is up to `tellapart.evaluation.context` and the verbs.
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
    """2.5·max(cos, 0), 0 to 2.5 (Hessel et al. 2021); texts are encoded behind "A photo depicts "."""
    return _with_mean(CLIPSCORE_WEIGHT * np.maximum(_cosine(text_ND, image_ND), 0))


def clipsc(text_ND: np.ndarray, image_ND: np.ndarray) -> tuple[float, np.ndarray]:
    """100·cos, −100 to 100, no prefix, no factor, negative ones kept: the "ClipSc" of paper 2's tables."""
    return _with_mean(100 * _cosine(text_ND, image_ND))


def refclipscore(
    text_ND: np.ndarray, image_ND: np.ndarray, reference_RD: Sequence[np.ndarray]
) -> tuple[float, np.ndarray]:
    """Harmonic mean of CLIPScore and the largest cosine with a reference, at least 0 (Hessel et al. 2021).

    ``reference_RD`` has each caption's references, encoded behind the same prefix. 0 where either is 0. Because
    CLIPScore has its factor 2.5 and the cosine has none, the range is 0 to 10/7.
    """
    score_N = clipscore(text_ND, image_ND)[1]
    pairs = zip(text_ND, reference_RD, strict=True)
    near_N = np.array([max(0.0, float((held_RD @ text_D).max())) for text_D, held_RD in pairs], dtype=float)
    sum_N = score_N + near_N
    return _with_mean(np.where(sum_N > 0, 2 * score_N * near_N / np.where(sum_N > 0, sum_N, 1), 0))


class EMScore(NamedTuple):
    """Precision, recall and F of each caption: each is ``(corpus, per_caption_N)``."""

    precision: tuple[float, np.ndarray]
    recall: tuple[float, np.ndarray]
    f: tuple[float, np.ndarray]


def emscore(
    text_ND: np.ndarray,
    token_TD: Sequence[np.ndarray],
    frame_FD: Sequence[np.ndarray],
    weight_T: Sequence[np.ndarray] | None = None,
) -> EMScore:
    """EMScore(X, V) of clips (Shi et al. 2022): the mean of a coarse and a fine matching, −1 to 1.

    Coarse: the cosine of the caption's feature with the mean of the frames' features. Fine: each token with its
    nearest frame, weighted by ``weight_T`` (idf; None: all alike), is the precision, each frame with its nearest
    token is the recall; F is their harmonic mean. Tokens are those of the encoder, start and end among them.
    NaN where the weights are all 0, and for F where precision and recall cancel out.
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
    """EMScore's F of N captions with each of M clips, a row of M for each caption: what paper 1 ranks clips by.

    Else as `emscore`.
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
    """Weights of tokens for `emscore`: log((M + 1) / (df + 1)) over M texts as token ids.

    A token that no text has is worth log(M + 1). The end token, which is in every text, is worth the mean of all
    that were seen: it stands for the whole caption. As in EMScore's own program, texts are padded to ``window`` with
    the token ``padding`` (CLIP's own tokenizer: 0, which is also its "!"), and padding is a token that was seen: the
    mean has one more number, and "!" is worth next to nothing. None for ``padding`` leaves it out.
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
# `bertscore` is the formula on token features that a text encoder gave; `tellapart.evaluation.text_models` loads one.

References = Sequence[Sequence[str]]


class TokenFeatures(NamedTuple):
    """Unit features of a text's tokens, special ones included, and what each token weighs (special ones: 0)."""

    feature_TD: np.ndarray
    weight_T: np.ndarray


class TokenEncoder(Protocol):
    """An encoder of texts that gives a feature for each token."""

    def token_features(self, texts: Sequence[str]) -> list[TokenFeatures]: ...


class BERTScore(NamedTuple):
    """Precision, recall and F1 of each caption: each is ``(corpus, per_caption_N)``, the corpus number the mean."""

    precision: tuple[float, np.ndarray]
    recall: tuple[float, np.ndarray]
    f: tuple[float, np.ndarray]


def bertscore(captions: Sequence[str], references: References, *, model: TokenEncoder) -> BERTScore:
    """BERTScore without idf weights and without rescaling, −1 to 1 (mostly 0 to 1).

    Of several references each of the three numbers takes its own maximum, as the package bert-score does. A text
    without a word scores 0. Raises `UsageError` where a caption has no list of references.
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
    """Precision, recall and F1 (Zhang et al. 2020, section 3)."""
    if not caption.weight_T.sum() or not reference.weight_T.sum():
        return 0.0, 0.0, 0.0
    cosine_TR = caption.feature_TD @ reference.feature_TD.T
    precision = float(caption.weight_T @ cosine_TR.max(1) / caption.weight_T.sum())
    recall = float(reference.weight_T @ cosine_TR.max(0) / reference.weight_T.sum())
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _mean(value_N: np.ndarray) -> float:
    return float(value_N.mean()) if len(value_N) else math.nan
