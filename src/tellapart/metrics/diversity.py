"""How different several captions of one picture are: Div-1, Div-2 and mBLEU (paper 4, section 3.2).

Each metric is a pure function ``(caption_lists) -> (corpus, per_picture_N)``: all captions of a picture in one list,
numbers 0 to 1, NaN for a picture with nothing to compare. Words are those of the COCO tools' PTB tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.ngrams import ORDERS
from tellapart.metrics.overlap import BLEU_SIGNATURE, bleu_counts_of_tokens, bleus_of_counts
from tellapart.metrics.ptb import VERSION, ptb_tokenize
from tellapart.metrics.registry import caption_set_metric
from tellapart.metrics.results import LANGUAGE
from tellapart.metrics.statistics import Corpus, SummedStatistic

CaptionLists = Sequence[Sequence[str]]

COUNTS = 2 + 2 * ORDERS  # what `bleu_counts` has for one caption
DIV_SIGNATURE = f"distinct/words|mean-of-pictures|tok:{VERSION}"
MBLEU_SIGNATURE = f"bleu4-of-each-caption-against-the-others|mean-of-corpus-bleus|{BLEU_SIGNATURE}"


@caption_set_metric(
    "div1",
    needs=("several",),
    signature=DIV_SIGNATURE,
    digits=2,
    label="Div-1",
    help="distinct words over all words in the captions of a picture",
    direction="higher",
    group=LANGUAGE,
    families=("div",),
)
def div1(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """Distinct words of a picture's captions over all their words; higher is more diverse (paper 4, section 3.2)."""
    return _distinct(caption_lists, 1)


@caption_set_metric(
    "div2",
    needs=("several",),
    signature=DIV_SIGNATURE,
    digits=2,
    label="Div-2",
    help="distinct pairs of words over all words in the captions of a picture",
    direction="higher",
    group=LANGUAGE,
    families=("div",),
)
def div2(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """Distinct bigrams of a picture's captions over the number of their **words** (paper 4, section 3.2).

    Bigrams do not reach over the end of a caption. Because words are counted below the line, and not bigrams,
    captions that share nothing stay a little below 1.
    """
    return _distinct(caption_lists, 2)


@caption_set_metric(
    "mbleu",
    corpus_rows=lambda caption_lists: Corpus(list(mbleu_counts(caption_lists)), mbleu_of_counts),
    needs=("several",),
    signature=MBLEU_SIGNATURE,
    digits=2,
    label="mBLEU",
    help="BLEU-4 of each caption of a picture against its others",
    direction="lower",
    group=LANGUAGE,
    aliases=("selfbleu",),
)
def mbleu(caption_lists: CaptionLists) -> tuple[float, np.ndarray]:
    """BLEU-4 of each caption against the picture's others; lower is more diverse (paper 4, section 3.2).

    The corpus number is the mean over slots (first captions, second captions, …) of the slot's corpus BLEU-4. It
    is not the mean of the pictures' own numbers, which are means over their captions' BLEU-4 alone.
    A picture with one caption has nothing to be compared with: NaN, and not in the corpus number.
    """
    counts_NKC = mbleu_counts(caption_lists)
    if not counts_NKC.size:
        return float("nan"), np.full(len(counts_NKC), np.nan)
    alone_NK = bleus_of_counts(np.moveaxis(counts_NKC, -1, 0).reshape(COUNTS, -1))[-1].reshape(counts_NKC.shape[:2])
    present_NK = _present(counts_NKC)
    size_N = present_NK.sum(1)
    sum_N = np.where(present_NK, alone_NK, 0).sum(1)
    value_N = np.where(size_N > 0, sum_N / np.maximum(size_N, 1), np.nan)
    return mbleu_of_counts(list(counts_NKC))(np.ones(len(counts_NKC))), value_N


def mbleu_counts(caption_lists: CaptionLists) -> np.ndarray:
    """What BLEU is made of for each caption against its picture's others, N×K×10; NaN where there is no caption.

    Captions are tokenised once, as one text in the order of the pictures: a caption has the same words as a caption and
    as a reference, also where its end looks at the next line.
    """
    _check(caption_lists)
    tokenized = iter(ptb_tokenize([text for texts in caption_lists for text in texts]))
    caption_lists = [[next(tokenized) for _ in texts] for texts in caption_lists]
    where = [(n, k) for n, texts in enumerate(caption_lists) if len(texts) > 1 for k in range(len(texts))]
    counts_NKC = np.full((len(caption_lists), max(map(len, caption_lists), default=0), COUNTS), np.nan)
    if where:
        reference_texts = [[*caption_lists[n][:k], *caption_lists[n][k + 1 :]] for n, k in where]
        number_M, slot_M = np.array(where).T
        counts_NKC[number_M, slot_M] = bleu_counts_of_tokens([caption_lists[n][k] for n, k in where], reference_texts)
    return counts_NKC


def mbleu_of_counts(rows: Sequence[np.ndarray]) -> SummedStatistic:
    """`mbleu`'s corpus number as a function of the pictures' weights, from their rows of `mbleu_counts`, K×10 each."""
    counts_NKC = np.full((len(rows), max((len(row) for row in rows), default=0), COUNTS), np.nan)
    for number, row in enumerate(rows):
        counts_NKC[number, : len(row)] = row
    # Behind its ten counts each slot has whether there is a caption.
    present_NK1 = _present(counts_NKC)[:, :, None]
    counts_NKD = np.concatenate([np.where(present_NK1, counts_NKC, 0), present_NK1], axis=2)
    return SummedStatistic(counts_NKD.reshape(len(rows), -1), _mbleu_of_sums, bounds=(0.0, 1.0))


def _mbleu_of_sums(counts_RC: np.ndarray) -> np.ndarray:
    counts_RKD = counts_RC.reshape(*counts_RC.shape[:-1], -1, COUNTS + 1)
    present_RK = counts_RKD[..., -1] > 0
    bleu_RK = bleus_of_counts(np.moveaxis(counts_RKD[..., :-1], -1, 0))[-1]
    size_R = present_RK.sum(-1)
    mean_R: np.ndarray = np.where(size_R > 0, np.where(present_RK, bleu_RK, 0).sum(-1) / np.maximum(size_R, 1), np.nan)
    return mean_R


def _present(counts_NKC: np.ndarray) -> np.ndarray:
    present_NK: np.ndarray = ~np.isnan(counts_NKC[:, :, 0])
    return present_NK


def _distinct(caption_lists: CaptionLists, n: int) -> tuple[float, np.ndarray]:
    _check(caption_lists)
    tokenized = iter(ptb_tokenize([text for texts in caption_lists for text in texts]))
    value_N = np.array([_ratio([next(tokenized).split() for _ in texts], n) for texts in caption_lists], dtype=float)
    kept_N = value_N[~np.isnan(value_N)]
    return (float(kept_N.mean()) if len(kept_N) else float("nan")), value_N


def _ratio(caption_tokens: Sequence[Sequence[str]], n: int) -> float:
    count = sum(map(len, caption_tokens))
    if not count:
        return float("nan")
    grams = {tuple(words[start : start + n]) for words in caption_tokens for start in range(len(words) - n + 1)}
    return len(grams) / count


def _check(caption_lists: CaptionLists) -> None:
    wrong = next((number for number, texts in enumerate(caption_lists) if isinstance(texts, str)), None)
    if wrong is not None:
        raise UsageError(
            f"picture {wrong} has one text and not a list of captions; diversity is of several captions of a picture"
        )
