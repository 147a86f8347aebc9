"""References as counted n-grams, a block of pictures at a time, shared by BLEU and CIDEr."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tellapart.metrics.ngrams import Counts, GramTable
from tellapart.metrics.recent import BLOCK, recent


class CountedBlock(NamedTuple):
    """The counted references of some pictures: ``image_R`` counts these pictures from 0."""

    pictures: slice
    counts: Counts
    image_R: np.ndarray


class Counted:
    """All pictures' references as n-grams of one table, counted a block of pictures at a time.

    The counts of a single block are kept; of several each is counted when it is its turn, from the numbers of the
    n-grams, so that memory grows by 16 bytes a word. ``table`` is shared: look up in it, do not add.
    """

    def __init__(self, references: list[list[str]]) -> None:
        self.table = GramTable()
        self.pictures = len(references)
        self._size_N = np.array([len(texts) for texts in references], dtype=np.int64)
        flat = [text for texts in references for text in texts]
        self._whole: CountedBlock | None = None
        if self.pictures <= BLOCK:
            image_R = np.repeat(np.arange(self.pictures), self._size_N)
            self._whole = CountedBlock(slice(0, self.pictures), self.table.add_texts(flat, image_R), image_R)
        else:
            self._numbered = self.table.number_texts(flat)

    @property
    def in_one_block(self) -> bool:
        """Whether the counts are kept."""
        return self._whole is not None

    def blocks(self) -> Iterator[CountedBlock]:
        """The references of all pictures, block by block."""
        if self._whole is not None:
            yield self._whole
            return
        end_N = np.cumsum(self._size_N)
        for start in range(0, self.pictures, BLOCK):
            pictures = slice(start, min(start + BLOCK, self.pictures))
            size_B = self._size_N[pictures]
            image_R = np.repeat(np.arange(len(size_B)), size_B)
            texts = slice(int(end_N[pictures][0] - size_B[0]), int(end_N[pictures][-1]))
            yield CountedBlock(pictures, self._numbered.counts(texts, image_R), image_R)


@recent
def counted(references: list[list[str]]) -> Counted:
    """The n-grams of references that are already tokenised."""
    return Counted(references)
