"""Lexical metrics, which need no model: length, diversity, vocabulary and repetition.

Every metric is a pure function ``(captions, references) -> (corpus, per_caption_N)`` that ignores the references.
A count of distinct words is not a mean over captions, so its ``per_caption_N`` is None. For its interval, `words_used`
counts the words again in random halves of the captions (`corpus_scores.Recounted`).
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tellapart.language.english_words import FUNCTION_WORDS
from tellapart.metrics.corpus_scores import PERCENT, with_mean
from tellapart.metrics.metric_info import LANGUAGE
from tellapart.metrics.registry import metric

References = Sequence[Sequence[str]] | None

FREQUENT = 5  # "words with frequency ≥ 5" (paper 2, table 6)
_LONG_RUN = 6
_FIRST_USES = 40
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(caption: str, *, lower: bool = False) -> list[str]:
    """Strips punctuation and splits a caption on white space, as in paper 1's code. Keeps case unless ``lower`` is
    true.
    """
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
    """Counts words, and returns the mean and each caption's count (paper 1, table 1)."""
    length_N = np.array([len(words(caption)) for caption in captions], dtype=float)
    return with_mean(length_N)


def texts_alone(captions: Sequence[str], references: References = None) -> list[str]:
    """Returns the captions unchanged. They are the per-caption statistics for metrics that count words."""
    return list(captions)


def words_used(
    captions: Sequence[str], least: int = 1, *, lower: bool = False, unit: float = 1
) -> Callable[[np.ndarray], float]:
    """Returns a function of caption weights: the number of words used at least ``least`` times, divided by ``unit``.

    For speed, only the first uses of each word are counted. A common word's remaining uses are added only in the few
    resamples in which its first uses do not reach ``least``.
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
    signature="distinct/1000|words:punctuation-stripped,case-kept",
    digits=2,
    label="lexical diversity",
    help="distinct words in all captions together, in thousands",
    direction="higher",
    group=LANGUAGE,
    aliases=("lexdiversity", "lexicaldiv"),
)
def lexical_diversity(captions: Sequence[str], references: References = None) -> tuple[float, None]:
    """Counts the distinct words in all captions, case-sensitively, in thousands (paper 1, table 1)."""
    return len({word for caption in captions for word in words(caption)}) / 1000, None


@metric(
    "vocabulary",
    stats=texts_alone,
    score=partial(words_used, least=FREQUENT, lower=True),
    signature="frequency>=5|words:punctuation-stripped,lower-case",
    digits=0,
    label="vocabulary",
    help="number of distinct words that are used at least five times",
    group=LANGUAGE,
    aliases=("vocab", "vocabularysize"),
)
def vocabulary(captions: Sequence[str], references: References = None) -> tuple[float, None]:
    """Counts the distinct lower-cased words that occur at least 5 times in all captions together (paper 2, table 6)."""
    used = Counter(word for caption in captions for word in words(caption, lower=True))
    return float(sum(count >= FREQUENT for count in used.values())), None


@metric(
    "repetition_rate",
    signature="percent-of-words|runs:adjacent,6+,unseparated",
    bounds=PERCENT,
    digits=2,
    label="repetition",
    help="% of words that repeat earlier words in the caption",
    direction="lower",
    group=LANGUAGE,
    aliases=("repetition", "rep"),
)
def repetition_rate(captions: Sequence[str], references: References = None) -> tuple[float, np.ndarray]:
    """Computes the percentage of a caption's words that only repeat earlier words. Returns the mean and each caption's
    value.

    A word counts, once, if it is
    1. part of a run of any length that repeats the run right before it ("square on grass square on grass": 3 of 6),
    2. part of a run of at least 6 words that the caption has used before, or
    3. repeated without a function word in between ("snow dog brown snow": 1 of 4).

    Thus "a man in a red shirt and a red hat" scores 0. The mean over human captions is 0.02 (Flickr8k, all 40,460) and
    0.03 (COCO, Karpathy's test split). Shorter runs do not count, because careful writers and the full descriptions of
    `scenes` (0.1) also say "a small red square … a small red circle". An empty caption is NaN.
    """
    rate_N = np.array([_repetition(words(caption, lower=True)) for caption in captions], dtype=float)
    return with_mean(rate_N)


def _repetition(tokens: Sequence[str]) -> float:
    if not tokens:
        return float("nan")
    if len(set(tokens)) == len(tokens):
        return 0.0
    again = _immediate_runs(tokens) | _long_runs(tokens) | _unseparated_words(tokens)
    return 100 * len(again) / len(tokens)


def _immediate_runs(tokens: Sequence[str]) -> set[int]:
    """Returns the positions of words in the second and later copies of a run that immediately repeats."""
    number: dict[str, int] = {}
    word_N = np.array([number.setdefault(word, len(number)) for word in tokens])
    again_N = np.zeros(len(tokens), dtype=bool)
    for size in range(1, len(tokens) // 2 + 1):
        same = word_N[size:] == word_N[:-size]  # positions whose word is the same as `size` positions earlier
        if np.count_nonzero(same) >= size:
            edges = np.flatnonzero(np.diff(same, prepend=False, append=False)).reshape(-1, 2)
            for start, stop in edges[edges[:, 1] - edges[:, 0] >= size].tolist():
                again_N[start + size : stop + size] = True
    return set(np.flatnonzero(again_N).tolist())


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
