"""Scores texts for a query with BM25 (Robertson and Zaragoza 2009, in Lucene's form)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from tellapart.metrics.ptb import ptb_tokenize

K1, B = 1.2, 0.75
_WORD = re.compile(r"\w")


class BM25:
    """An inverted index over N texts. Maps each word to the texts that contain it, with weights."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        words_N = [query_words(text) for text in ptb_tokenize(texts)]
        length_N = np.array([len(words) for words in words_N], dtype=float)
        norm_N = K1 * (1 - B + B * length_N / max(length_N.mean(), 1.0)) if len(texts) else length_N
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, words in enumerate(words_N):
            for word, times in Counter(words).items():
                found[word].append((number, times))
        self.postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, own in found.items():
            number_P, times_P = np.array(own).T
            idf = np.log(1 + (self.size - len(own) + 0.5) / (len(own) + 0.5))
            self.postings[word] = number_P, idf * times_P / (times_P + norm_N[number_P])

    def scores(self, query: Sequence[str]) -> np.ndarray:
        """Returns each text's score for the words in a query. A text that contains none of the words scores 0."""
        score_N = np.zeros(self.size)
        for word in query:
            if word in self.postings:
                number_P, weight_P = self.postings[word]
                score_N[number_P] += weight_P
        return score_N


def query_words(tokens: str) -> list[str]:
    """Returns the words in a tokenized text, without its punctuation."""
    return [word for word in tokens.split() if _WORD.search(word)]
