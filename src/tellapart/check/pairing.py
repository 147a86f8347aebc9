"""Checks whether captions belong to their pictures, by the words that they share with the references."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MIN_PAIRS = 20  # with fewer pictures, correct pairs may share as few words as shuffled ones
MAX_PAIRS = 200
MAX_MISFITS = 0.25
PERMUTATIONS = 199
OTHERS = 50  # pictures that each caption is compared with
_WORD = re.compile(r"[^\W_]+")
_FIRST_UNSPACED = "\u0590"  # scripts from this code point on may have no spaces between words, or many inflections


def units(text: str) -> set[str]:
    """Returns the lowercase words of a text, or character bigrams for scripts without spaces."""
    words = _WORD.findall(text.lower())
    return {*words, *(word[at : at + 2] for word in words if max(word) >= _FIRST_UNSPACED for at in range(len(word)))}


class Overlap:
    """Scores the overlap between captions and references, with higher weights for rare words."""

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        self.known = [set[str]().union(*map(units, texts)) for texts in references]
        documents = Counter(unit for own in self.known for unit in own)
        self._weight = {unit: math.log(len(self.known) / count) for unit, count in documents.items()}
        self._length = [math.sqrt(sum(self._weight[unit] for unit in own)) or 1.0 for own in self.known]

    def score(self, caption: set[str], picture: int) -> float:
        """Returns the total weight of the common units, divided by the square root of the picture's total weight."""
        return sum([self._weight[unit] for unit in caption & self.known[picture]]) / self._length[picture]


@dataclass(frozen=True)
class Fit:
    """Result of `measure_fit`.

    p: p-value of the permutation test.
    misfits: share of captions that have fewer words in common with their own picture's references than with those of
        most other pictures.
    """

    p: float
    misfits: float

    @property
    def doubtful(self) -> bool:
        """Returns whether captions look shuffled or shifted. A poor fit alone proves nothing: a weak captioner's
        captions fit poorly even when paired correctly.
        """
        return self.p > 0.05 or self.misfits > MAX_MISFITS


def measure_fit(captions: Sequence[str], references: Sequence[Sequence[str]]) -> Fit | None:
    """Compares captions with the references of their own picture and of other pictures in a permutation test.

    Uses at most `MAX_PAIRS` pictures, sampled with a fixed seed. Returns None if there are fewer than `MIN_PAIRS`
    pictures or all captions are the same.
    """
    rows = [row for row, text in enumerate(captions) if text.strip()]
    if len(rows) < MIN_PAIRS or len({captions[row] for row in rows}) == 1:
        return None
    if len(rows) > MAX_PAIRS:
        rows = sorted(random.Random(0).sample(rows, MAX_PAIRS))
    overlap = Overlap([references[row] for row in rows])
    said = [units(captions[row]) for row in rows]
    score_NN = np.array([[overlap.score(words, other) for other in range(len(rows))] for words in said])
    rng, row_N, own_N = np.random.default_rng(0), np.arange(len(rows)), score_NN.diagonal()
    shuffled = sum(
        float(score_NN[row_N, rng.permutation(row_N)].sum()) >= float(own_N.sum()) for _ in range(PERMUTATIONS)
    )
    misfit_N = (score_NN > own_N[:, None]).sum(1) > (score_NN < own_N[:, None]).sum(1)
    return Fit((1 + shuffled) / (1 + PERMUTATIONS), float(misfit_N.mean()))


def misfits(captions: Sequence[str], pictures: Sequence[int], references: Sequence[Sequence[str]]) -> list[int]:
    """Returns the rows of captions that fit most other pictures' references better than their own picture's references.

    The fit depends on the words that a caption and the references have in common.

    pictures: the row of each caption's picture among the references. Each caption is compared with the same `OTHERS`
    pictures, sampled with a fixed seed; captions that have no word in common with any of them are skipped. Returns no
    rows if there are fewer than `MIN_PAIRS` pictures.
    """
    if len(references) < MIN_PAIRS:
        return []
    overlap = Overlap(references)
    others = random.Random(0).sample(range(len(references)), min(OTHERS, len(references)))
    found = []
    for row, (text, own) in enumerate(zip(captions, pictures, strict=True)):
        words = units(text)
        mine = overlap.score(words, own)
        score_O = [overlap.score(words, other) for other in others if other != own]
        below, above = (sum(sign * score > sign * mine for score in score_O) for sign in (-1, 1))
        if above > below and any(score_O):
            found.append(row)
    return found
