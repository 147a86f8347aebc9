"""Sentences as counted n-grams in numpy: every n-gram has a number, and equal n-grams have the same one.

An n-gram is known by the number of its first n − 1 words and that of its last word, so one integer is enough at
every length, for any vocabulary. Suffixes: E entries (an n-gram in a sentence), M sentences, G known n-grams.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

ORDERS = 4
_WORDS = 1 << 31  # room for words in a key, above which stands the number of the n-gram before


@dataclass(frozen=True)
class Counts:
    """The n-grams of one length in M sentences: entries sorted by sentence, then n-gram."""

    sentence_E: np.ndarray
    gram_E: np.ndarray
    count_E: np.ndarray


@dataclass
class GramTable:
    """Numbers for words and n-grams up to four long. ``keys`` are sorted, ``ids`` the numbers in that order."""

    words: dict[Hashable, int] = field(default_factory=dict)
    keys: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.int64) for _ in range(ORDERS)])
    ids: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.int64) for _ in range(ORDERS)])

    def sizes(self) -> list[int]:
        """How many n-grams of each length are known."""
        return [len(keys) for keys in self.keys]

    def add(self, sentences: Sequence[Sequence[Hashable]]) -> list[Counts]:
        """Count the n-grams of sentences; those that are new are known from now on."""
        return self._counts(sentences, learn=True)

    def look_up(self, sentences: Sequence[Sequence[Hashable]]) -> list[Counts]:
        """Count the n-grams of sentences; an unknown one has a number from the table's size up, in this call only."""
        return self._counts(sentences, learn=False)

    def _counts(self, sentences: Sequence[Sequence[Hashable]], learn: bool) -> list[Counts]:
        length_M = np.fromiter(map(len, sentences), np.int64, len(sentences))
        word_P = self._words_of((word for sentence in sentences for word in sentence), int(length_M.sum()), learn)
        sentence_P = np.repeat(np.arange(len(sentences)), length_M)
        left_P = np.repeat(np.cumsum(length_M), length_M) - np.arange(len(word_P))  # words up to the sentence's end
        found, gram_P = [], np.zeros(len(word_P), np.int64)
        for order in range(ORDERS):
            start_S = np.flatnonzero(left_P > order)
            key_S = gram_P[start_S] * _WORDS + word_P[start_S + order]
            gram_S = self._grams_of(order, key_S, learn)
            gram_P = np.zeros(len(word_P), np.int64)
            gram_P[start_S] = gram_S
            found.append(_counted(sentence_P[start_S], gram_S))
        return found

    def _words_of(self, words: Iterable[Hashable], count: int, learn: bool) -> np.ndarray:
        numbers = self.words if learn else _Strangers(self.words)
        if learn:
            return np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int64, count)
        return np.fromiter(map(numbers.__getitem__, words), np.int64, count)

    def _grams_of(self, order: int, key_S: np.ndarray, learn: bool) -> np.ndarray:
        keys, ids = self.keys[order], self.ids[order]
        gram_S = np.full(len(key_S), -1, np.int64)
        if len(keys):
            place_S = np.minimum(np.searchsorted(keys, key_S), len(keys) - 1)
            gram_S = np.where(keys[place_S] == key_S, ids[place_S], -1)
        new_S = gram_S < 0
        if new_S.any():
            fresh, which = np.unique(key_S[new_S], return_inverse=True)
            gram_S[new_S] = len(keys) + which
            if learn:
                merged = np.concatenate([keys, fresh])
                order_G = np.argsort(merged, kind="stable")
                self.keys[order] = merged[order_G]
                self.ids[order] = np.concatenate([ids, len(keys) + np.arange(len(fresh))])[order_G]
        return gram_S


class _Strangers(dict[Hashable, int]):
    """A table's words, and numbers after them for words that it does not know."""

    def __init__(self, words: dict[Hashable, int]) -> None:
        self.known = words

    def __missing__(self, word: Hashable) -> int:
        number = self.known.get(word)
        if number is None:
            number = len(self.known) + len(self)
        self[word] = number
        return number


def _counted(sentence_S: np.ndarray, gram_S: np.ndarray) -> Counts:
    span = int(gram_S.max()) + 1 if len(gram_S) else 1
    key_E, count_E = np.unique(sentence_S * span + gram_S, return_counts=True)
    return Counts(key_E // span, key_E % span, count_E)
