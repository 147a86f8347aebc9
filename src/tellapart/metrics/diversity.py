"""Measures how diverse several captions of one picture are: Div-1, Div-2 and mBLEU (paper 4, section 3.2).

Each metric is a pure function ``(caption_lists) -> (corpus, per_picture_N)``, where each picture has a list of
captions. Values range from 0 to 1, and are NaN for a picture with nothing to compare. The COCO tools' PTB tokenizer
splits captions into words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.bleu_score import BLEU_SIGNATURE, COUNTS, bleu_of, stats_of_tokens
from tellapart.metrics.corpus_scores import with_mean
from tellapart.metrics.metric_info import LANGUAGE
from tellapart.metrics.ptb import VERSION, ptb_tokenize
from tellapart.metrics.recent import recent
from tellapart.metrics.registry import caption_set_metric

CaptionLists = Sequence[Sequence[str]]

DIV_SIGNATURE = f"distinct/words|mean-of-pictures|tok:{VERSION}"
MBLEU_SIGNATURE = f"bleu4-of-each-caption-against-the-others|mean-of-corpus-bleus|{BLEU_SIGNATURE}"


@caption_set_metric(
    "div1",
    needs=("several",),
    signature=DIV_SIGNATURE,
    digits=2,
    label="Div-1",
    help="number of distinct words / number of words in a picture's captions",
    direction="higher",
    group=LANGUAGE,
    families=("div",),
)
def div1(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """Computes distinct words / all words in a picture's captions; higher is more diverse (paper 4, section 3.2)."""
    return _distinct(caption_lists, 1)


@caption_set_metric(
    "div2",
    needs=("several",),
    signature=DIV_SIGNATURE,
    digits=2,
    label="Div-2",
    help="number of distinct word pairs / number of words in a picture's captions",
    direction="higher",
    group=LANGUAGE,
    families=("div",),
)
def div2(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """Computes distinct bigrams / number of **words** in a picture's captions (paper 4, section 3.2).

    Bigrams do not span captions. The denominator counts words, not bigrams, so even captions that share nothing score
    slightly below 1.
    """
    return _distinct(caption_lists, 2)


@recent
def mbleu_stats(caption_lists: CaptionLists) -> np.ndarray:
    """Returns the BLEU statistics of each caption compared with the picture's other captions, N×11K.

    Each of K slots has the ten counts from `bleu_stats` and a 1, or only zeros if the picture has no caption for the
    slot or only one caption in total. All captions are tokenized together, in picture order, because the tokenizer can
    look ahead to the next line. This way, a caption has the same words as a candidate and as a reference.
    """
    lists = _tokenized(caption_lists)
    stats_NKD = np.zeros((len(lists), max(map(len, lists), default=0), COUNTS + 1))
    where = [(n, k) for n, texts in enumerate(lists) if len(texts) > 1 for k in range(len(texts))]
    if where:
        others = [[*lists[n][:k], *lists[n][k + 1 :]] for n, k in where]
        number_M, slot_M = np.array(where).T
        stats_NKD[number_M, slot_M, :COUNTS] = stats_of_tokens([lists[n][k] for n, k in where], others)
        stats_NKD[number_M, slot_M, COUNTS] = 1
    return stats_NKD.reshape(len(lists), stats_NKD.shape[1] * (COUNTS + 1))


def mbleu_of(sums_RC: np.ndarray) -> np.ndarray:
    """Computes corpus BLEU-4, averaged over slots, from the sums of `mbleu_stats`."""
    sums_RKD = sums_RC.reshape(*sums_RC.shape[:-1], -1, COUNTS + 1)
    present_RK = sums_RKD[..., -1] > 0
    size_R = present_RK.sum(-1)
    sum_R = np.where(present_RK, bleu_of(sums_RKD[..., :-1]), 0).sum(-1)
    mean_R: np.ndarray = np.where(size_R > 0, sum_R / np.maximum(size_R, 1), np.nan)
    return mean_R


@caption_set_metric(
    "mbleu",
    stats=mbleu_stats,
    score=mbleu_of,
    bounds=(0.0, 1.0),
    needs=("several",),
    signature=MBLEU_SIGNATURE,
    digits=2,
    label="mBLEU",
    help="BLEU-4 of each caption, with the picture's other captions as references",
    direction="lower",
    group=LANGUAGE,
    aliases=("selfbleu",),
)
def mbleu(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """Computes each caption's BLEU-4 with the picture's other captions as references; lower is more diverse (paper 4,
    section 3.2).

    The corpus score is the mean of each slot's corpus BLEU-4, where the slots are all first captions, all second
    captions, and so on. It is not the mean of the per-picture scores, which average the sentence BLEU-4 of a picture's
    captions. A picture with only one caption is NaN and is excluded from the corpus score.
    """
    stats_NC = mbleu_stats(caption_lists)
    if not stats_NC.size:
        return float("nan"), np.full(len(stats_NC), np.nan)
    return float(mbleu_of(stats_NC.sum(0))), mbleu_of(stats_NC)


def _distinct(caption_lists: CaptionLists, n: int) -> tuple[float, np.ndarray]:
    ratios = []
    for texts in _tokenized(caption_lists):
        split = [text.split() for text in texts]
        grams = {tuple(words[start : start + n]) for words in split for start in range(len(words) - n + 1)}
        count = sum(map(len, split))
        ratios.append(len(grams) / count if count else math.nan)
    return with_mean(np.array(ratios, dtype=float))


def _tokenized(caption_lists: CaptionLists) -> list[list[str]]:
    wrong = next((number for number, texts in enumerate(caption_lists) if isinstance(texts, str)), None)
    if wrong is not None:
        raise UsageError(
            f"picture {wrong} has a single string instead of a list of captions; diversity requires several "
            "captions per picture"
        )
    tokens = iter(ptb_tokenize([text for texts in caption_lists for text in texts]))
    return [[next(tokens) for _ in texts] for texts in caption_lists]
