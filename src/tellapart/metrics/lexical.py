"""Measures of the words of captions, without any model: length, diversity, vocabulary, repetition.

Every metric is a pure function ``(captions, references) -> (corpus, per_caption_N)``; the references are not looked at
here. Counts of distinct words are no mean of the captions' numbers: their ``per_caption_N`` is None, and `words_used`
counts for the bootstrap.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tellapart.language.english import FUNCTION_WORDS
from tellapart.metrics.registry import metric
from tellapart.metrics.results import LANGUAGE
from tellapart.metrics.statistics import PERCENT

References = Sequence[Sequence[str]] | None

FREQUENT = 5  # "words with frequency ≥ 5" (paper 2, table 6)
_LONG_RUN = 6
_FIRST_USES = 40
_LONG_CAPTION = 200  # words, from which on the quick search for runs is quicker
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(caption: str, *, lower: bool = False) -> list[str]:
    """The words of a caption: punctuation stripped, split on white space (paper 1's program); case is kept."""
    return (caption.lower() if lower else caption).translate(_NO_PUNCTUATION).split()


@metric(
    "length",
    signature="words:punctuation-stripped",
    bounds=(0.0, math.inf),
    label="length",
    help="words per caption",
    group=LANGUAGE,
    aliases=("captionlength", "avglength"),
)
def length(captions: Sequence[str], references: References = None) -> tuple[float, np.ndarray]:
    """Words in a caption: their mean, and one number per caption (paper 1, table 1)."""
    length_N = np.array([len(words(caption)) for caption in captions], dtype=float)
    return _mean(length_N), length_N


def texts_alone(captions: Sequence[str], references: References = None) -> list[str]:
    """Returns the captions: what `words_used` counts in."""
    return list(captions)


def words_used(
    captions: Sequence[str], least: int = 1, *, lower: bool = False, unit: float = 1
) -> Callable[[np.ndarray], float]:
    """Returns how many words are used at least ``least`` times, over ``unit``, as a function of the captions' weights.

    Nearly all of the text is made of a few common words, which nearly every resample has often enough. So only the
    first uses of each word are counted, and the rest of a common word's uses where those did not suffice.
    """
    uses: dict[str, list[int]] = {}
    for number, caption in enumerate(captions):
        for word in words(caption, lower=lower):
            uses.setdefault(word, []).append(number)
    first = [numbers[:_FIRST_USES] for numbers in uses.values()]
    rest = [np.array(numbers[_FIRST_USES:], dtype=np.intp) for numbers in uses.values()]
    caption_E = np.array([number for numbers in first for number in numbers], dtype=np.intp)
    word_E = np.repeat(np.arange(len(first)), [len(numbers) for numbers in first])
    common_W = np.array([len(numbers) > 0 for numbers in rest], dtype=bool)

    def statistic(weight_N: np.ndarray) -> float:
        count_W = np.bincount(word_E, weights=weight_N[caption_E], minlength=len(first))
        for word in np.flatnonzero(common_W & (count_W < least)):
            count_W[word] += weight_N[rest[word]].sum()
        return np.count_nonzero(count_W >= least) / unit

    return statistic


@metric(
    "lexical_diversity",
    stats=texts_alone,
    score=partial(words_used, unit=1000),
    grows=True,
    signature="distinct/1000|words:punctuation-stripped,case-kept",
    digits=2,
    label="lexical diversity",
    help="distinct words in all captions together, in thousands",
    direction="higher",
    group=LANGUAGE,
    aliases=("lexdiversity", "lexicaldiv"),
)
def lexical_diversity(captions: Sequence[str], references: References = None) -> tuple[float, None]:
    """Distinct words over all captions, in thousands, case kept (paper 1, table 1)."""
    return len({word for caption in captions for word in words(caption)}) / 1000, None


@metric(
    "vocabulary",
    stats=texts_alone,
    score=partial(words_used, least=FREQUENT, lower=True),
    grows=True,
    signature="frequency>=5|words:punctuation-stripped,lower-case",
    digits=0,
    label="vocabulary",
    help="distinct words that are used at least five times",
    group=LANGUAGE,
    aliases=("vocab", "vocabularysize"),
)
def vocabulary(captions: Sequence[str], references: References = None) -> tuple[float, None]:
    """Distinct words, in lower case, that all captions together use at least 5 times (paper 2, table 6)."""
    used = Counter(word for caption in captions for word in words(caption, lower=True))
    return float(sum(count >= FREQUENT for count in used.values())), None


@metric(
    "repetition_rate",
    signature="percent-of-words|runs:adjacent,6+,unseparated",
    bounds=PERCENT,
    digits=2,
    label="repetition",
    help="per cent of words that repeat earlier words of the caption",
    direction="lower",
    group=LANGUAGE,
    aliases=("repetition", "rep"),
)
def repetition_rate(captions: Sequence[str], references: References = None) -> tuple[float, np.ndarray]:
    """Percent of a caption's words that only repeat earlier ones: the mean, and one number per caption.

    A word counts (once) if it is part of
    1. a run of any length that repeats the run right before it ("square on grass square on grass": 3 of 6),
    2. a run of at least 6 words that the caption has used before, or
    3. a word used again before any function word came between ("snow dog brown snow": 1 of 4).
    So "a man in a red shirt and a red hat" has none. The mean over human captions is 0.02 (Flickr8k, all 40,460) and
    0.03 (COCO, Karpathy's test split). Runs shorter than six words are no sign of trouble: careful people and
    the full descriptions of `scenes` (0.1) say "a small red square … a small red circle".
    An empty caption has no words and abstains (NaN).
    """
    rate_N = np.array([_repetition(words(caption, lower=True)) for caption in captions], dtype=float)
    return _mean(rate_N), rate_N


def _repetition(tokens: Sequence[str]) -> float:
    if not tokens:
        return float("nan")
    if len(set(tokens)) == len(tokens):
        return 0.0
    again = _immediate_runs(tokens) | _long_runs(tokens) | _unseparated_words(tokens)
    return 100 * len(again) / len(tokens)


def _immediate_runs(tokens: Sequence[str]) -> set[int]:
    """Positions in the second and later copies of a run that follows itself."""
    if len(tokens) > _LONG_CAPTION:
        return _immediate_runs_of_many(tokens)
    again: set[int] = set()
    for size in range(1, len(tokens) // 2 + 1):
        same = 0  # how many words up to here equal the word `size` before
        for position in range(size, len(tokens)):
            same = same + 1 if tokens[position] == tokens[position - size] else 0
            if same >= size:
                again.update(range(position - size + 1, position + 1))
    return again


def _immediate_runs_of_many(tokens: Sequence[str]) -> set[int]:
    """The same for thousands of words, in n·log² n steps.

    A run of ``size`` words that follows itself holds a word at a multiple of ``size``. From each such word and the
    word ``size`` after it, equal words are counted forwards and backwards, by blocks of 2^k words that are known to
    be equal (Karp, Miller and Rosenberg 1972).
    """
    number = {word: place for place, word in enumerate(dict.fromkeys(tokens))}
    count = len(tokens)
    block_KN = [np.array([number[word] for word in tokens])]
    while 2 << len(block_KN) <= count:
        last_N, half = block_KN[-1], 1 << (len(block_KN) - 1)
        pair_N = last_N[:-half] * np.int64(count) + last_N[half:]
        block_KN.append(np.unique(pair_N, return_inverse=True)[1])
    size_Q = np.repeat(np.arange(1, count // 2 + 1), [(count - 1) // size for size in range(1, count // 2 + 1)])
    first_Q = np.concatenate([np.arange(0, count - size, size) for size in range(1, count // 2 + 1)])
    forwards_Q = _equal_words(block_KN, first_Q, first_Q + size_Q)
    backwards_Q = _equal_words([block_N[::-1] for block_N in block_KN], count - first_Q, count - first_Q - size_Q)
    long_Q = forwards_Q + backwards_Q >= size_Q
    second_Q = (first_Q + size_Q)[long_Q]
    edge_N = np.zeros(count + 1, np.int64)
    np.add.at(edge_N, second_Q - backwards_Q[long_Q], 1)
    np.add.at(edge_N, second_Q + forwards_Q[long_Q], -1)
    return set(np.flatnonzero(np.cumsum(edge_N) > 0).tolist())


def _equal_words(block_KN: Sequence[np.ndarray], a_Q: np.ndarray, b_Q: np.ndarray) -> np.ndarray:
    """Counts the words from a on that equal those from b on; ``block_KN[k]`` numbers blocks of 2^k words by content."""
    a_Q, b_Q = a_Q.copy(), b_Q.copy()
    start_Q = a_Q.copy()
    for power, block_N in reversed(list(enumerate(block_KN))):
        inside = np.flatnonzero(np.maximum(a_Q, b_Q) < len(block_N))
        same = inside[block_N[a_Q[inside]] == block_N[b_Q[inside]]]
        a_Q[same] += 1 << power
        b_Q[same] += 1 << power
    length_Q: np.ndarray = a_Q - start_Q
    return length_Q


def _long_runs(tokens: Sequence[str]) -> set[int]:
    again: set[int] = set()
    seen: set[tuple[str, ...]] = set()
    for start in range(len(tokens) - _LONG_RUN + 1):
        run = tuple(tokens[start : start + _LONG_RUN])
        if run in seen:
            again.update(range(start, start + _LONG_RUN))
        seen.add(run)
    return again


def _unseparated_words(tokens: Sequence[str]) -> set[int]:
    again: set[int] = set()
    since: set[str] = set()
    for position, word in enumerate(tokens):
        if word in FUNCTION_WORDS:
            since.clear()
        elif word in since:
            again.add(position)
        else:
            since.add(word)
    return again


def _mean(value_N: np.ndarray) -> float:
    kept_N = value_N[~np.isnan(value_N)]
    return float(kept_N.mean()) if len(kept_N) else float("nan")
