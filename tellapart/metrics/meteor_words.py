"""What METEOR knows of the words and phrases of some sentences: stems, synonyms, function words, paraphrases.

Each distinct word is looked up once and called by a number.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tellapart.errors import MissingExtra, TellapartError
from tellapart.metrics.meteor_index import LONGEST, Tables, phrase_hashes, word_hash
from tellapart.metrics.meteor_text import normalise

# WordNet's rules from an inflected form to its base; the first base that has synonyms counts.
_ENDINGS = [
    ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y"),
    ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("er", ""), ("est", ""),
    ("er", "e"), ("est", "e"),
]  # fmt: skip
Span = tuple[int, int, int]  # first word, number of words, row in the table of paraphrases


DELTA = 0.75  # the share of a content word in precision and recall; the rest is a function word's


class Lexicon:
    """Words by number: ``stem``, ``synsets``, ``function`` and ``share`` are lists over the numbers."""

    def __init__(self, tables: Tables, stem: Callable[[str], Any] | None = None) -> None:
        self.tables = tables
        self.number: dict[str, int] = {}
        self.stem: list[Any] = []
        self.synsets: list[frozenset[int]] = []
        self.function: list[bool] = []
        self.share: list[float] = []
        self._hash: list[int] = []
        self._stem_of = stem or english_stemmer()
        self._paraphrases: dict[int, dict[int, int]] = {}

    def sentence(self, text: str) -> list[str]:
        """The words of a text that the PTB tokenizer has cut."""
        return normalise(text, self.tables.abbreviations, self.tables.before_numbers)

    def numbers(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """The words' numbers. New words are looked up all at once."""
        new = [word for word in dict.fromkeys(w for words in sentences for w in words) if word not in self.number]
        for word in new:
            self.number[word] = len(self.number)
        hashes = [word_hash(word) for word in new]
        self._hash += hashes
        self.stem += map(self._stem_of, new)
        self.function += [word in self.tables.function_words for word in new]
        self.share += [1 - DELTA if word in self.tables.function_words else DELTA for word in new]
        self.synsets += self._synsets(new, hashes)
        return [[self.number[word] for word in words] for words in sentences]

    def paraphrases(self, phrase: int) -> dict[int, int]:
        """Of a row of the table the rows of its paraphrases, each with its place among them."""
        known = self._paraphrases.get(phrase)
        if known is None:
            found = self.tables.paraphrases.row(phrase)
            known = self._paraphrases[phrase] = {row: place for place, row in enumerate(found)}
        return known

    def spans(self, sentences: Sequence[Sequence[int]]) -> list[list[Span]]:
        """Of each sentence all phrases that the table of paraphrases knows, by first word and number of words."""
        length_N = np.fromiter(map(len, sentences), np.int64, len(sentences))
        end_W = np.repeat(np.cumsum(length_N), length_N)
        number_W = np.fromiter((number for words in sentences for number in words), np.int64, len(end_W))
        hash_W = np.array(self._hash, np.uint64)[number_W] if len(number_W) else np.zeros(0, np.uint64)
        place_W = np.arange(len(end_W))
        found = [np.zeros((0, 3), np.int64)]
        for size in range(1, LONGEST + 1):
            first_P = np.flatnonzero(place_W + size <= end_W)
            said = hash_W[(first_P[:, None] + np.arange(size)).ravel()]
            distinct, where_P = np.unique(phrase_hashes(said, np.arange(len(first_P)) * size), return_inverse=True)
            row_P = self.tables.paraphrases.find(distinct)[where_P]
            kept = row_P >= 0
            found.append(np.stack([first_P[kept], np.full(int(kept.sum()), size), row_P[kept]], axis=1))
        all_S3 = np.concatenate(found)
        all_S3 = all_S3[np.lexsort((all_S3[:, 1], all_S3[:, 0]))]
        begin_N = np.cumsum(length_N) - length_N
        cut = np.searchsorted(all_S3[:, 0], np.append(begin_N, len(end_W)))
        sentence_S = np.repeat(np.arange(len(sentences)), np.diff(cut))
        all_S3[:, 0] -= begin_N[sentence_S]
        rows = list(map(tuple, all_S3.tolist()))
        places = cut.tolist()
        return [rows[a:b] for a, b in itertools.pairwise(places)]

    def _synsets(self, words: Sequence[str], hashes: Sequence[int]) -> list[frozenset[int]]:
        tables = self.tables
        irregular_W = tables.irregular.find(np.array(hashes, np.uint64)).tolist()
        asked: dict[int, int] = dict.fromkeys(hashes, -1)
        bases: list[list[int]] = []
        for word, irregular in zip(words, irregular_W, strict=True):
            bases.append([] if irregular >= 0 else [word_hash(base) for base in _bases(word)])
            asked.update(dict.fromkeys(bases[-1], -1))
        rows = tables.synsets.find(np.fromiter(asked, np.uint64, len(asked))).tolist()
        row = dict(zip(asked, rows, strict=True))
        found = []
        for own, irregular, tried in zip(hashes, irregular_W, bases, strict=True):
            base = next((row[key] for key in tried if row[key] >= 0), -1)
            synsets = tables.synsets.row(row[own]) if row[own] >= 0 else []
            synsets += tables.synsets.row(base) if base >= 0 else []
            synsets += tables.irregular.row(irregular) if irregular >= 0 else []
            found.append(frozenset(synsets))
        return found


def _bases(word: str) -> Iterable[str]:
    if len(word) <= 2:
        return []
    return [
        word[: len(word) - len(ending)] + instead
        for ending, instead in _ENDINGS
        if word.endswith(ending) and not (ending == "s" and word.endswith("ss"))
    ]


def english_stemmer() -> Callable[[str], str]:
    """Snowball's English stemmer as it was in METEOR's days: version 3 of the library stems other words."""
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtra("meteor", "METEOR") from None
    stem: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    if stem("evening") != "even":
        raise TellapartError(
            "the installed snowballstemmer is newer than METEOR's; type: pip install 'snowballstemmer>=2.2,<3'"
        )
    return stem
