"""BLEU and ROUGE-L as the COCO tools compute them, on captions that their PTB tokenizer has cut.

``bleu`` and ``rouge_l`` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, both 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.ngrams import ORDERS, CountedBlock, GramTable, counted, sorted_unique
from tellapart.metrics.ptb import VERSION, recent, tokenized
from tellapart.metrics.registry import metric
from tellapart.metrics.results import CLOSE
from tellapart.metrics.statistics import PERCENT, SummedStatistic

References = Sequence[Sequence[str]]

BLEU_SIGNATURE = f"coco|reflen:closest|smoothing:none|tok:{VERSION}"
ROUGE_SIGNATURE = f"coco|beta:1.2|max-precision,max-recall|tok:{VERSION}"
_BETA = 1.2
_TINY, _SMALL = 1e-15, 1e-9  # the COCO tools' guards against 0/0; they are part of the number


def bleu(captions: Sequence[str], references: References, n: int = 4) -> tuple[float, np.ndarray]:
    """BLEU-n of the corpus (Papineni et al. 2002, eq. 1-3 with uniform weights), and of each caption alone.

    The closest reference's length counts, the shorter one where two are as close. The corpus number is made of
    summed counts and is not the mean of the captions'. Raises `UsageError` for n outside 1 to 4.
    """
    if not 1 <= n <= ORDERS:
        raise UsageError(f"BLEU-{n} is not defined here; expected n from 1 to {ORDERS}")
    corpus_K, caption_KN = bleus(captions, references)
    return float(corpus_K[n - 1]), caption_KN[n - 1]


def bleus(captions: Sequence[str], references: References) -> tuple[np.ndarray, np.ndarray]:
    """BLEU-1 to 4 at once: four corpus numbers, and 4×N for the captions."""
    counts_NC = bleu_counts(captions, references)
    if not len(counts_NC):
        return np.full(ORDERS, np.nan), np.zeros((ORDERS, 0))
    return bleus_of_counts(counts_NC.sum(0)), bleus_of_counts(counts_NC.T)


def bleu_statistic(captions: Sequence[str], references: References, n: int = 4) -> SummedStatistic:
    """`bleu`'s corpus number as a function of the captions' weights: sums of counts, weighted."""
    return SummedStatistic(bleu_counts(captions, references), partial(_bleu_of_sums, n=n), bounds=(0.0, 1.0))


def _bleu_of_sums(counts_RC: np.ndarray, n: int) -> np.ndarray:
    bleu_KR = bleus_of_counts(np.moveaxis(counts_RC, -1, 0))
    return np.asarray(bleu_KR[n - 1])


_SPANS = ("words", *(f"word sequences, up to {longest} long," for longest in ("two", "three", "four")))
for _n in range(1, ORDERS + 1):
    metric(
        f"bleu{_n}",
        statistic=partial(bleu_statistic, n=_n),
        signature=BLEU_SIGNATURE,
        label=f"BLEU-{_n}",
        help=f"{_SPANS[_n - 1]} shared with the references",
        scale=100.0,
        bounds=PERCENT,
        direction="higher",
        group=CLOSE,
        aliases=(f"b@{_n}", f"b{_n}"),
        families=("bleu",),
    )(partial(bleu, n=_n))


@recent
def bleu_counts(captions: Sequence[str], references: References) -> np.ndarray:
    """All that BLEU is made of, N×10: words, closest reference's words, n-grams (4), n-grams matched (4)."""
    return bleu_counts_of_tokens(*tokenized(captions, references))


def bleu_counts_of_tokens(caption_tokens: list[str], reference_texts: list[list[str]]) -> np.ndarray:
    """`bleu_counts` of captions and references that are tokenised already, tokens joined by blanks."""
    references = counted(reference_texts)
    parts = [_bleu_counts(references.table, block, caption_tokens[block.pictures]) for block in references.blocks()]
    return np.concatenate(parts) if parts else np.zeros((0, 2 + 2 * ORDERS))


def _bleu_counts(table: GramTable, references: CountedBlock, caption_tokens: list[str]) -> np.ndarray:
    """The counts of the captions of some pictures."""
    reference, image_R = references.counts, references.image_R
    caption = table.look_up([text.split() for text in caption_tokens])
    length_N = caption.length_M.astype(float)
    counts_NC = np.zeros((len(caption_tokens), 2 + 2 * ORDERS))
    counts_NC[:, 0] = length_N
    counts_NC[:, 1] = _closest(length_N, reference.length_M, image_R)
    counts_NC[:, 2 : 2 + ORDERS] = np.maximum(length_N[:, None] - np.arange(ORDERS), 0)
    span = int(max(table.size, caption.gram_E.max(initial=0) + 1))  # room for n-grams that no reference has
    key_E = image_R[reference.sentence_E] * span + reference.gram_E
    known, start, _ = sorted_unique(key_E)
    most = np.maximum.reduceat(reference.count_E, start) if len(known) else np.zeros(0, int)
    matched_E = np.minimum(caption.count_E, _at(known, most, caption.sentence_E * span + caption.gram_E))
    cell_E = caption.sentence_E * ORDERS + caption.order_E
    matched_NK = np.bincount(cell_E, matched_E, minlength=len(caption_tokens) * ORDERS).reshape(-1, ORDERS)
    counts_NC[:, 2 + ORDERS :] = matched_NK
    return counts_NC


def _closest(length_N: np.ndarray, length_R: np.ndarray, image_R: np.ndarray) -> np.ndarray:
    """Of each picture's references the length nearest to its caption's, the shorter one of two as near."""
    order_R = np.lexsort((length_R, np.abs(length_R - length_N[image_R]), image_R))
    return length_R[order_R[np.searchsorted(image_R, np.arange(len(length_N)))]]


def _at(known: np.ndarray, value: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The values of sorted keys, 0 for a key that is not among them."""
    if not len(known):
        return np.zeros(len(asked), int)
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[place] == asked, value[place], 0)


def bleus_of_counts(counts_C: np.ndarray) -> np.ndarray:
    """BLEU-1 to 4 from the ten counts of `bleu_counts` (of a corpus, or with a second axis of captions)."""
    words, closest, possible, matched = counts_C[0], counts_C[1], counts_C[2 : 2 + ORDERS], counts_C[2 + ORDERS :]
    root = (1 / np.arange(1, ORDERS + 1)).reshape(-1, *[1] * (counts_C.ndim - 1))
    found: np.ndarray = np.cumprod((matched + _TINY) / (possible + _SMALL), axis=0) ** root
    ratio = (words + _TINY) / (closest + _SMALL)
    value: np.ndarray = found * np.exp(np.minimum(0, 1 - 1 / ratio))
    return value


@metric(
    "rouge_l",
    signature=ROUGE_SIGNATURE,
    label="ROUGE-L",
    help="longest common word sequence with the references",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    aliases=("rouge",),
)
def rouge_l(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """ROUGE-L (Lin 2004) with β = 1.2: its mean, and one number per caption.

    F of the best precision and the best recall over the references, which may be two different ones (the COCO
    tools' reading). An empty text counts as one empty word there, so an empty caption meets an empty reference.
    """
    return rouge_of_tokens(*tokenized(captions, references))


def rouge_of_tokens(caption_tokens: list[str], reference_texts: list[list[str]]) -> tuple[float, np.ndarray]:
    """Computes `rouge_l` of texts that are tokenised already, tokens joined by single blanks."""
    score_N = np.array(
        [_rouge(caption.split(" "), texts) for caption, texts in zip(caption_tokens, reference_texts, strict=True)]
    )
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


def _rouge(caption: list[str], references: Sequence[str]) -> float:
    place: dict[str, int] = {}  # where each word stands in the caption, as bits
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
    """Length of the longest common subsequence: the rows of its table are the bits of one integer (Hyyrö 2004)."""
    full = (1 << length) - 1
    row = full
    for word in words:
        match = place.get(word)
        if match:
            row = (row + (row & match)) | (row & ~match)
    return length - (row & full).bit_count()
