"""What METEOR knows of the words and phrases of some sentences: stems, synonyms, function words, paraphrases.

Each distinct word is looked up once and called by a number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tellapart.metrics.meteor_index import LONGEST, PLACES, Tables, bases, english_stemmer, word_hash
from tellapart.metrics.meteor_text import normalise

DELTA = 0.75  # the share of a content word in precision and recall; the rest is a function word's
Span = tuple[int, int, int]  # first word, number of words, row in the table of paraphrases


class Lexicon:
    """Words by number: ``stem``, ``synsets``, ``function`` and ``share`` are lists over the numbers."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.number: dict[str, int] = {}
        self.stem: list[int] = []
        self.synsets: list[frozenset[int]] = []
        self.function: list[bool] = []
        self.share: list[float] = []
        self._hash: list[int] = []

    def sentence(self, text: str) -> list[str]:
        """The words of a text that the PTB tokenizer has cut."""
        return normalise(text, self.tables.abbreviations, self.tables.before_numbers)

    def numbers(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """The words' numbers. New words are looked up all at once."""
        new = [word for word in dict.fromkeys(itertools.chain(*sentences)) if word not in self.number]
        for word in new:
            self.number[word] = len(self.number)
        hashes = [word_hash(word) for word in new]
        self._hash += hashes
        self.function += [word in self.tables.function_words for word in new]
        self.share += [1 - DELTA if word in self.tables.function_words else DELTA for word in new]
        known_W = self.tables.words.find(np.array(hashes, np.uint64))
        stem_W = self.tables.stem_W[known_W] if len(self.tables.stem_W) else known_W
        for word, row, stem in zip(new, known_W.tolist(), stem_W.tolist(), strict=True):
            self.stem.append(stem if row >= 0 else word_hash(english_stemmer()(word)))
            self.synsets.append(frozenset(self.tables.words.row(row) if row >= 0 else self._synsets(word)))
        return [[self.number[word] for word in words] for words in sentences]

    def spans(self, sentences: Sequence[Sequence[int]]) -> list[list[Span]]:
        """Of each sentence all phrases that the table of paraphrases knows, by first word and number of words."""
        length_N = np.fromiter(map(len, sentences), np.int64, len(sentences))
        number_W = np.fromiter(itertools.chain(*sentences), np.int64, int(length_N.sum()))
        hash_W = np.array(self._hash, np.uint64)[number_W]
        left_W = np.repeat(np.cumsum(length_N), length_N) - np.arange(len(number_W))  # words to the sentence's end
        hash_P = np.zeros(len(hash_W), np.uint64)
        first_P = np.arange(len(hash_W))
        sizes: list[tuple[np.ndarray, np.ndarray]] = []
        for size in range(1, LONGEST + 1):
            kept = left_W[first_P] >= size
            first_P, hash_P = first_P[kept], hash_P[kept] + hash_W[first_P[kept] + size - 1] * PLACES[size - 1]
            sizes.append((first_P, hash_P))
        first_S, hash_S = (np.concatenate(column) for column in zip(*sizes, strict=True))
        size_S = np.repeat(np.arange(1, LONGEST + 1), [len(first) for first, _ in sizes])
        distinct, where_S = np.unique(hash_S, return_inverse=True)
        row_S = self.tables.paraphrases.find(distinct)[where_S]
        order = np.flatnonzero(row_S >= 0)
        order = order[np.argsort(first_S[order], kind="stable")]  # sizes stay in order
        first_S, size_S, row_S = first_S[order], size_S[order], row_S[order]
        begin_N = np.cumsum(length_N) - length_N
        cut = np.searchsorted(first_S, np.append(begin_N, len(number_W)))
        first_S = first_S - np.repeat(begin_N, np.diff(cut))
        spans = list(zip(first_S.tolist(), size_S.tolist(), row_S.tolist(), strict=True))
        return [spans[a:b] for a, b in itertools.pairwise(cut.tolist())]

    def paraphrases(self, spans: Sequence[Sequence[Span]]) -> dict[int, dict[int, int]]:
        """Of the phrases in ``spans`` those that have paraphrases among them: each of these with its place there."""
        table = self.tables.paraphrases
        rows = {span[2] for own in spans for span in own}
        row_D = np.sort(np.fromiter(rows, np.int64, len(rows)))
        begin_D = table.start[row_D].astype(np.int64)
        many_D = table.start[row_D + 1] - begin_D
        place_E = np.arange(int(many_D.sum())) - np.repeat(np.cumsum(many_D) - many_D, many_D)
        other_E = table.value[place_E + np.repeat(begin_D, many_D)]
        asked = np.zeros(len(table.key), dtype=bool)
        asked[row_D] = True
        hit = np.flatnonzero(asked[other_E])
        row_E = np.repeat(row_D, many_D)[hit]
        found: dict[int, dict[int, int]] = {}
        for row, other, place in zip(row_E.tolist(), other_E[hit].tolist(), place_E[hit].tolist(), strict=True):
            found.setdefault(row, {})[other] = place
        return found

    def _synsets(self, word: str) -> list[int]:
        """Of a word that is in none of the tables: those of its base form."""
        rows = self.tables.synsets.find(np.array([word_hash(base) for base in bases(word)], np.uint64)).tolist()
        return next((self.tables.synsets.row(row) for row in rows if row >= 0), [])
