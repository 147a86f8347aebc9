"""Generates synthetic inputs of any size for ``benchmarks growth``: captions, references, and matching features.

Captions are random walks on a chain of words. Each word has few successors, and the first successors are likelier. The
number of distinct n-grams therefore grows as in human captions: ever more slowly, and for single words first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from tellapart.types import Encoder

VOCABULARY, SUCCESSORS = 10_000, 200
SHORTEST, LONGEST = 8, 14  # number of words; COCO's captions have 10.5 on average
REFERENCES = 5
D = 512
KEPT = 0.6  # fraction of a reference's words that other texts about the picture share
NOISE = 0.5  # noise in an image's features, in addition to the words of its first reference
BLOCK = 8192


def word(number: int) -> str:
    """Returns a word that consists only of letters, so that the tokenizer does not change it."""
    letters = ""
    for _ in range(4):
        number, letter = divmod(number, 26)
        letters += chr(97 + letter)
    return letters


@dataclass(frozen=True)
class Captions:
    """Captions and references for ``count`` pictures. For a given seed, a picture's text is the same for any count."""

    count: int
    seed: int = 0

    @cached_property
    def words(self) -> list[str]:
        """Returns the vocabulary."""
        return [word(number) for number in range(VOCABULARY)]

    @cached_property
    def _chain(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the successors of each word, V×S, and their cumulative probabilities by Zipf's law."""
        rng = np.random.default_rng(self.seed)
        share_V = 1 / np.arange(1, VOCABULARY + 1)
        successor_VS = rng.choice(VOCABULARY, (VOCABULARY, SUCCESSORS), p=share_V / share_V.sum())
        share_S = 1 / np.arange(1, SUCCESSORS + 1)
        return successor_VS.astype(np.int32), np.cumsum(share_S / share_S.sum())

    def texts(self, which: int) -> list[str]:
        """Returns one text per picture. Number 0 is the first reference. The other texts share some of its words."""
        found: list[str] = []
        for start in range(0, self.count, BLOCK):
            rows = min(BLOCK, self.count - start)
            first_NT, length_N = self._walk(rows, start, 0)
            if which:
                other_NT, length_N = self._walk(rows, start, which)
                kept_NT = np.random.default_rng([self.seed, start, which, 1]).random(first_NT.shape) < KEPT
                first_NT = np.where(kept_NT, first_NT, other_NT)
            words = self.words
            found += [
                " ".join([words[number] for number in row[:length]])
                for row, length in zip(first_NT.tolist(), length_N.tolist(), strict=True)
            ]
        return found

    def references(self) -> list[tuple[str, ...]]:
        """Returns the references of each picture."""
        return list(zip(*(self.texts(which) for which in range(REFERENCES)), strict=True))

    def _walk(self, rows: int, start: int, which: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns word numbers (rows×LONGEST) and each row's length in words."""
        rng = np.random.default_rng([self.seed, start, which])
        successor_VS, share_S = self._chain
        at_NT = np.empty((rows, LONGEST), np.int32)
        at_NT[:, 0] = successor_VS[rng.integers(100, size=rows), 0]
        drawn_NT = np.searchsorted(share_S, rng.random((rows, LONGEST)))
        for place in range(1, LONGEST):
            at_NT[:, place] = successor_VS[at_NT[:, place - 1], np.minimum(drawn_NT[:, place], SUCCESSORS - 1)]
        return at_NT, rng.integers(SHORTEST, LONGEST + 1, size=rows)


def image_features(scorer: WordScorer, texts: Sequence[str], seed: int = 0) -> np.ndarray:
    """Returns unit-length features (N×D) for pictures with these texts: the texts' features plus noise."""
    feature_ND = np.empty((len(texts), D), np.float32)
    for start in range(0, len(texts), BLOCK):
        part = slice(start, start + BLOCK)
        own_BD = scorer.text_features(texts[part]).numpy()
        noise_BD = np.random.default_rng([seed, start]).standard_normal(own_BD.shape, dtype=np.float32)
        own_BD = own_BD + NOISE * noise_BD / D**0.5
        feature_ND[part] = own_BD / np.linalg.norm(own_BD, axis=1, keepdims=True)
    return feature_ND


class WordScorer:
    """A scorer whose text features are means of word vectors, so that it is fast at any size."""

    name, frames, window = "synthetic words", 1, 77

    def __init__(self, words: Sequence[str], seed: int = 0) -> None:
        import torch

        self._row = {word: number for number, word in enumerate(words)}
        self._vectors = torch.randn(len(words), D, generator=torch.Generator().manual_seed(seed))

    @property
    def encoder(self) -> Encoder:
        """An encoder of which only the fingerprint is used, because the features are given."""
        from tellapart.types import Encoder

        def unused(given: object) -> torch.Tensor:
            raise NotImplementedError("the features of pictures are given")

        return Encoder("synthetic words", unused, unused)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Returns each text's number of words plus two."""
        return [text.count(" ") + 3 for text in texts]

    def text_features(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns unit-length features N×D."""
        import torch

        rows = [[self._row[word] for word in text.split()] for text in texts]
        start_N = torch.tensor(np.cumsum([0, *map(len, rows)])[:-1])
        flat_P = torch.tensor([number for row in rows for number in row])
        mean_ND = torch.nn.functional.embedding_bag(flat_P, self._vectors, start_N, mode="mean")
        return torch.nn.functional.normalize(mean_ND, dim=1)
