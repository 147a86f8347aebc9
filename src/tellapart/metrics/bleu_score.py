"""BLEU (Papineni et al. 2002) as the COCO tools compute it, on captions tokenized with the tools' PTB tokenizer.

`bleu_stats` returns ten counts per caption, which can be summed over a corpus. `bleu_of` computes the score from the
sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.inputs import References
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, tokenized
from tellapart.metrics.recent import recent
from tellapart.metrics.registry import metric

ORDERS = 4
COUNTS = 2 + 2 * ORDERS  # words in the caption and in the closest reference, n-grams (4), matched n-grams (4)
BLEU_SIGNATURE = f"coco|reflen:closest|smoothing:none|tok:{VERSION}"
_TINY, _SMALL = 1e-15, 1e-9  # avoid 0/0; copied from the COCO tools, because the values affect the score


def bleu(captions: Sequence[str], references: References, n: int = 4) -> tuple[float, np.ndarray]:
    """Computes BLEU-n for the corpus (eq. 1-3 with uniform weights) and for each single caption, 0 to 1.

    The brevity penalty uses the closest reference length; on a tie, the shorter one. The corpus score is computed from
    summed counts and is not the mean over captions. Raises `UsageError` if n is not between 1 and 4.
    """
    if not 1 <= n <= ORDERS:
        raise UsageError(f"BLEU-{n} is not supported; expected n from 1 to {ORDERS}")
    corpus_K, caption_KN = bleus(captions, references)
    return float(corpus_K[n - 1]), caption_KN[n - 1]


def bleus(captions: Sequence[str], references: References) -> tuple[np.ndarray, np.ndarray]:
    """Computes BLEU-1 to BLEU-4 at once. Returns four corpus scores, and caption scores 4×N."""
    stats_NC = bleu_stats(captions, references)
    corpus_K = bleus_of(stats_NC.sum(0)) if len(stats_NC) else np.full(ORDERS, np.nan)
    return corpus_K, bleus_of(stats_NC.T)


@recent
def bleu_stats(captions: Sequence[str], references: References) -> np.ndarray:
    """Returns BLEU's sufficient statistics, N×10 (see `COUNTS`)."""
    return stats_of_tokens(*tokenized(captions, references))


def stats_of_tokens(caption_tokens: Sequence[str], reference_texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Computes `bleu_stats` for captions and references that are already tokenized."""
    counts = [_counts(caption, texts) for caption, texts in zip(caption_tokens, reference_texts, strict=True)]
    return np.array(counts, dtype=float).reshape(-1, COUNTS)


def _counts(caption: str, references: Sequence[str]) -> list[int]:
    """Returns the ten counts for a caption. An n-gram matches at most as often as it occurs in any single reference."""
    words, others = caption.split(), [text.split() for text in references]
    length = len(words)
    closest = min([(abs(len(other) - length), len(other)) for other in others])[1]
    row = [length, closest, *[max(length - order, 0) for order in range(ORDERS)], *[0] * ORDERS]
    joined = [word for other in others for word in (*other, "")]  # "" separates references; no caption contains it
    for n in range(1, ORDERS + 1):
        own = list(_grams(words, n))
        distinct = set(own)
        matched = distinct.intersection(_grams(joined, n))
        if not matched:
            break
        row[1 + ORDERS + n] = len(matched)
        if len(distinct) < len(own):  # repeated n-grams may count more than once
            again = [gram for gram in matched if own.count(gram) > 1]
            row[1 + ORDERS + n] += sum([min(own.count(gram), _most(gram, others)) - 1 for gram in again])
    return row


def _grams(words: Sequence[str], n: int) -> zip[tuple[str, ...]]:
    return zip(*[words[start:] for start in range(n)], strict=False)


def _most(gram: tuple[str, ...], others: Sequence[list[str]]) -> int:
    """Returns an n-gram's maximum count in any single reference."""
    if len(gram) == 1:
        return max([other.count(gram[0]) for other in others])
    return max([list(_grams(other, len(gram))).count(gram) for other in others])


def bleus_of(sums_C: np.ndarray) -> np.ndarray:
    """Computes BLEU-1 to BLEU-4 from the ten counts on the first axis."""
    words, closest, possible, matched = sums_C[0], sums_C[1], sums_C[2 : 2 + ORDERS], sums_C[2 + ORDERS :]
    root = (1 / np.arange(1, ORDERS + 1)).reshape(-1, *[1] * (sums_C.ndim - 1))
    found: np.ndarray = np.cumprod((matched + _TINY) / (possible + _SMALL), axis=0) ** root
    ratio = (words + _TINY) / (closest + _SMALL)
    value: np.ndarray = found * np.exp(np.minimum(0, 1 - 1 / ratio))
    return value


def bleu_of(sums_RC: np.ndarray, n: int = ORDERS) -> np.ndarray:
    """Computes BLEU-n from sums of the ten counts on the last axis."""
    return np.asarray(bleus_of(np.moveaxis(sums_RC, -1, 0))[n - 1])


_SPANS = ("words", *(f"word sequences, up to {longest} long," for longest in ("two", "three", "four")))
for _n in range(1, ORDERS + 1):
    metric(
        f"bleu{_n}",
        stats=bleu_stats,
        score=partial(bleu_of, n=_n),
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
