"""N-grams of references as tf-idf vectors, and how well counted captions agree with them: what CIDEr is made of.

Suffixes as in `ngrams`; besides, R references, I pictures, N captions, C caption entries that the table knows,
K pairs of a picture and an n-gram of its references, P pairs of a caption entry and a reference entry.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy

import numpy as np

from tellapart.metrics.ngrams import ORDERS, Counts, GramTable, Hashed, sorted_unique

SIGMA = 6.0


def documents_with(
    table: GramTable, counts: Counts, image_R: np.ndarray, shown_R: np.ndarray | None = None
) -> np.ndarray:
    """For each n-gram of the table the number of pictures whose references have it (of the references shown).

    The counts are of references in groups, a picture's each (`GramTable.add`).
    """
    key = _pictures_grams(counts, image_R, table.size, shown_R)
    return np.bincount(key % max(table.size, 1), minlength=table.size).astype(float)


def documents_of(table: GramTable, counts: Counts, image_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams that some references have, and the number of pictures whose references have each.

    As `documents_with`, in time and memory of these references alone, however large the table is.
    """
    key = _pictures_grams(counts, image_R, table.size)
    grams, _, documents = sorted_unique(np.sort(key % max(table.size, 1)))
    return grams, documents


def _pictures_grams(counts: Counts, image_R: np.ndarray, size: int, shown_R: np.ndarray | None = None) -> np.ndarray:
    """A key for each picture and n-gram of its references: picture · size + n-gram."""
    kept_E = slice(None) if shown_R is None else shown_R[counts.sentence_E]
    return sorted_unique(image_R[counts.sentence_E[kept_E]] * size + counts.gram_E[kept_E])[0]


def inverse_frequencies(frequency_G: np.ndarray, documents: int) -> np.ndarray:
    """The weight of each n-gram; the last place is for all n-grams that the table does not know."""
    rare = float(np.log(max(documents, 1)))  # the weight of an n-gram that no document has
    idf_G: np.ndarray = np.empty(len(frequency_G) + 1)
    np.maximum(frequency_G, 1.0, out=idf_G[:-1])
    np.log(idf_G[:-1], out=idf_G[:-1])
    np.subtract(rare, idf_G[:-1], out=idf_G[:-1])
    idf_G[-1] = rare
    return idf_G


class Vectors:
    """References as tf-idf vectors, sorted by picture and n-gram, for captions to be matched against.

    The counts are of references in groups, a picture's each (`GramTable.add`).
    """

    def __init__(
        self,
        table: GramTable,
        counts: Counts,
        image_R: np.ndarray,
        idf_G: np.ndarray,
        documents: int,
        plain: bool,
    ) -> None:
        self.table, self.counts, self.image_R, self.plain = table, counts, image_R, plain
        self.references = np.bincount(image_R)
        self.cell_E = counts.sentence_E * ORDERS + counts.order_E
        self.length_E = counts.length_M[counts.sentence_E]
        key_E = image_R[counts.sentence_E] * (table.size + 1) + counts.gram_E
        self.key_K, self.start_K, self.many_K = sorted_unique(key_E)
        self._place_of: Hashed | None = None
        self._weigh(idf_G, documents)

    def quicken(self) -> None:
        """Make matching quick, where captions come often."""
        self.table.quicken()
        self._place_of = Hashed(self.key_K, np.arange(len(self.key_K)))

    def under(self, frequency_G: np.ndarray, documents: int) -> Vectors:
        """The same references under other document frequencies."""
        other = copy(self)
        other._weigh(inverse_frequencies(frequency_G, documents), documents)
        return other

    def _weigh(self, idf_G: np.ndarray, documents: int) -> None:
        """``idf_G`` as `inverse_frequencies` gives it."""
        self.idf_G, self.documents = idf_G, documents
        self.weight_E = self.counts.count_E * self.idf_G[self.counts.gram_E]
        norm = _norm(self.cell_E, self.weight_E, len(self.image_R) * ORDERS)
        self.unit_E = self.weight_E / norm[self.cell_E]

    def score(self, sentences: Sequence[Sequence[Hashable]], image_N: np.ndarray) -> np.ndarray:
        """Each sentence against the references of its picture, mean over references and n-gram lengths, × 10."""
        return self.scores(self.table.look_up(sentences), image_N)

    def scores(self, captions: Counts, image_N: np.ndarray) -> np.ndarray:
        """`score` of sentences that the table has counted."""
        if not len(image_N):
            return np.zeros(0)
        size = self.table.size
        gram_E = np.minimum(captions.gram_E, size)  # `size` stands for all that the table does not know
        weight_E = captions.count_E * self.idf_G[gram_E]
        known_C = np.flatnonzero(captions.gram_E < size)
        place_C = self._places(image_N[captions.sentence_E[known_C]] * (size + 1) + gram_E[known_C])
        there = place_C >= 0
        hit_C, place_C = known_C[there], place_C[there]
        cell_E = captions.sentence_E * ORDERS + captions.order_E
        cells = len(captions.length_M) * ORDERS
        agreed = np.bincount(
            cell_E[hit_C],
            self._agreement(weight_E[hit_C], captions.length_M[captions.sentence_E[hit_C]], place_C),
            minlength=cells,
        )
        total_N = (agreed / _norm(cell_E, weight_E, cells)).reshape(-1, ORDERS).sum(1)
        score_N: np.ndarray = 10.0 * total_N / ORDERS / self.references[image_N]
        return score_N

    def _places(self, asked_E: np.ndarray) -> np.ndarray:
        """Where each key asked for stands, -1 where it is not there."""
        if self._place_of is not None:
            return self._place_of(asked_E)
        if not len(self.key_K):
            return np.full(len(asked_E), -1)
        place_E = np.minimum(np.searchsorted(self.key_K, asked_E), len(self.key_K) - 1)
        return np.where(self.key_K[place_E] == asked_E, place_E, -1)

    def _agreement(self, weight_C: np.ndarray, length_C: np.ndarray, place_C: np.ndarray) -> np.ndarray:
        """Of captions' n-grams (weights, lengths of their captions) the sums of products with the references' units.

        A row for each pair of a caption's n-gram and a reference that has it; those of an n-gram stand together.
        """
        many_C = self.many_K[place_C]
        entry_P = _ranges(self.start_K[place_C], many_C)
        weight_P = np.repeat(weight_C, many_C)
        if not self.plain:
            weight_P = np.minimum(weight_P, self.weight_E[entry_P])
            weight_P *= length_penalty(np.repeat(length_C, many_C) - self.length_E[entry_P])
        weight_P *= self.unit_E[entry_P]
        sum_C: np.ndarray = np.add.reduceat(weight_P, np.cumsum(many_C) - many_C) if len(many_C) else np.zeros(0)
        return sum_C


def _ranges(start_C: np.ndarray, many_C: np.ndarray) -> np.ndarray:
    """The numbers from each start on, as many as it has, in one row."""
    before_C = np.cumsum(many_C) - many_C
    places_P: np.ndarray = np.arange(int(many_C.sum())) + np.repeat(start_C - before_C, many_C)
    return places_P


def _norm(cell_E: np.ndarray, weight_E: np.ndarray, cells: int) -> np.ndarray:
    """For each cell (a sentence's n-grams of one length) the norm; 1 where it is 0: the tool does not divide by it."""
    norm: np.ndarray = np.sqrt(np.bincount(cell_E, weight_E * weight_E, minlength=cells))
    norm[norm == 0] = 1.0
    return norm


def length_penalty(delta_P: np.ndarray) -> np.ndarray:
    """The Gaussian of the difference in length, of which there are few distinct ones."""
    if not len(delta_P):
        return np.zeros(0)
    low, high = int(delta_P.min()), int(delta_P.max())
    penalty: np.ndarray = np.exp(-(np.arange(low, high + 1) ** 2) / (2 * SIGMA**2))
    return np.asarray(penalty[delta_P - low])
