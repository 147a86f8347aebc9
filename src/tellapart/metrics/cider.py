"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr; with document frequencies from where you say.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10; `CiderD`
keeps references and document frequencies for a reward that is asked again and again. Without document frequencies
of its own, one picture alone scores 0, and so does a word that every picture's references use.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.ptb import BLOCK, VERSION, check, ptb_tokenize, recent, tokenized
from tellapart.metrics.registry import metric
from tellapart.metrics.results import CLOSE

# Sentences as counted n-grams in numpy: every n-gram has a number, and equal n-grams have the same one.
#
# An n-gram is known by the number of its first n − 1 words and that of its last word, so one integer is enough at
# every length, for any vocabulary. Numbers say the length too: ``number % 4 + 1``. Suffixes: P positions (words of all
# sentences), E entries (an n-gram in a sentence), M sentences, G numbers of n-grams.

ORDERS = 4  # a power of two: the last bits of a number are its length
TEXTS = 16384  # texts that are cut into words at a time
WORDS = 1 << 31  # room for words in a key, above which stands the number of the n-gram before


@dataclass(frozen=True)
class Counts:
    """The n-grams of M sentences: entries sorted by sentence, then by number; each sentence's length in words.

    Where the sentences were counted in groups, entries are sorted by group, number, sentence.
    """

    sentence_E: np.ndarray
    gram_E: np.ndarray
    count_E: np.ndarray
    length_M: np.ndarray

    @property
    def order_E(self) -> np.ndarray:
        """The entries' lengths, 0 for single words to 3."""
        return self.gram_E & (ORDERS - 1)


@dataclass
class GramTable:
    """Words and n-grams by number. ``keys`` of each length are sorted, ``ids`` count within the length."""

    words: dict[Hashable, int] = field(default_factory=dict)
    keys: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.int64) for _ in range(ORDERS)])
    ids: list[np.ndarray] = field(default_factory=lambda: [np.zeros(0, np.int64) for _ in range(ORDERS)])

    def __post_init__(self) -> None:
        self._number_of_id = _Ids({})
        self._quick: list[Hashed] = []

    def quicken(self) -> None:
        """Make looking up quick, where it comes often: some five times, for the price of five look-ups."""
        self._quick = [Hashed(keys, ids) for keys, ids in zip(self.keys, self.ids, strict=True)]

    @property
    def size(self) -> int:
        """Every known n-gram's number is below this; not every number below it is one."""
        return ORDERS * max(map(len, self.keys))

    def add(self, sentences: Sequence[Sequence[Hashable]], group_M: np.ndarray | None = None) -> Counts:
        """Count the n-grams of sentences; those that are new are known from now on. ``group_M`` (ascending) sorts."""
        return self._add(list(chain.from_iterable(sentences)), _lengths(sentences), group_M)

    def add_texts(self, texts: Sequence[str], group_M: np.ndarray | None = None) -> Counts:
        """`add` of texts whose words stand between blanks: one cut for all of them."""
        flat = " ".join(texts).split()
        length_M = np.fromiter((text.count(" ") + 1 if text else 0 for text in texts), np.int64, len(texts))
        if length_M.sum() != len(flat):  # words between other blanks, such as a no-break space
            return self.add([text.split() for text in texts], group_M)
        return self._add(flat, length_M, group_M)

    def _add(self, flat: Sequence[Hashable], length_M: np.ndarray, group_M: np.ndarray | None) -> Counts:
        return self._counts(self._learn_words(flat), length_M, True, group_M)

    def _learn_words(self, flat: Sequence[Hashable]) -> np.ndarray:
        words = self.words
        for word in dict.fromkeys(flat):
            words.setdefault(word, len(words))
        return np.fromiter(map(words.__getitem__, flat), np.int64, len(flat))

    def number_texts(self, texts: Sequence[str]) -> NumberedTexts:
        """The numbers of the n-grams of texts whose words stand between blanks, not counted yet: see `NumberedTexts`.

        Those that are new are known from now on, by the same numbers that `add_texts` gives them.
        """
        words, lengths = [], []
        for start in range(0, len(texts), TEXTS):  # a word is a Python object only while its part is numbered
            cut = [text.split() for text in texts[start : start + TEXTS]]
            words.append(self._learn_words(list(chain.from_iterable(cut))).astype(np.int32))
            lengths.append(_lengths(cut))
        word_P, length_M = np.concatenate(words).astype(np.int64), np.concatenate(lengths)
        id_OP = np.full((ORDERS, len(word_P)), -1, np.int32)
        for order, (start_S, id_S) in enumerate(self._ids_by_order(word_P, length_M, True)):
            id_OP[order, start_S] = id_S
        return NumberedTexts(id_OP, length_M)

    def look_up(self, sentences: Sequence[Sequence[Hashable]]) -> Counts:
        """Count the n-grams of sentences; an unknown one has a number of its own, not below `size`, in this call."""
        length_M = _lengths(sentences)
        get, flat = self.words.get, list(chain.from_iterable(sentences))
        word_P = np.array([get(word, -1) for word in flat], dtype=np.int64)
        strangers: dict[Hashable, int] = {}
        for place in np.flatnonzero(word_P < 0):
            word_P[place] = strangers.setdefault(flat[place], len(self.words) + len(strangers))
        return self._counts(word_P, length_M, False)

    def look_up_ids(self, token_P: np.ndarray, length_M: np.ndarray) -> Counts:
        """As `look_up`, for words that are token ids (not below 0): all rows in one array, and the rows' lengths."""
        if len(self._number_of_id) != len(self.words):
            self._number_of_id = _Ids(self.words)
        return self._counts(self._number_of_id(token_P), length_M, False)

    def _counts(
        self, word_P: np.ndarray, length_M: np.ndarray, learn: bool, group_M: np.ndarray | None = None
    ) -> Counts:
        sentence_P = np.repeat(np.arange(len(length_M)), length_M)
        sentences, grams = [], []
        for order, (start_S, id_S) in enumerate(self._ids_by_order(word_P, length_M, learn)):
            sentences.append(sentence_P[start_S])
            grams.append(id_S * ORDERS + order)
        return _counted(np.concatenate(sentences), np.concatenate(grams), length_M, group_M)

    def _ids_by_order(
        self, word_P: np.ndarray, length_M: np.ndarray, learn: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each length the positions S where an n-gram starts, and its number within the length."""
        left_P = np.repeat(np.cumsum(length_M), length_M) - np.arange(len(word_P))  # words up to the sentence's end
        size, id_P = self.size, np.zeros(len(word_P), np.int64)
        for order in range(ORDERS):
            start_S = np.flatnonzero(left_P > order)
            id_S = self._ids_of(order, id_P[start_S] * WORDS + word_P[start_S + order], size // ORDERS, learn)
            id_P[start_S] = id_S
            yield start_S, id_S

    def _ids_of(self, order: int, key_S: np.ndarray, beyond: int, learn: bool) -> np.ndarray:
        keys, ids = self.keys[order], self.ids[order]
        if order == 0 and learn:  # a word's number is its n-gram's
            self.keys[0] = self.ids[0] = np.arange(len(self.words))
            return key_S
        if order == 0:  # those that are unknown stand above
            return np.where(key_S < len(keys), key_S, key_S + (beyond - len(keys)))
        if learn:
            self._quick = []
        id_S = np.full(len(key_S), -1, np.int64)
        if self._quick:  # an n-gram that begins with an unknown one is unknown
            asked = np.flatnonzero(key_S < beyond * WORDS)
            id_S[asked] = self._quick[order](key_S[asked])
        elif len(keys):
            sorted_S = np.argsort(key_S)  # what is looked for in order is found much sooner
            place_S = np.empty(len(key_S), np.int64)
            place_S[sorted_S] = np.minimum(np.searchsorted(keys, key_S[sorted_S]), len(keys) - 1)
            id_S = np.where(keys[place_S] == key_S, ids[place_S], -1)
        new_S = np.flatnonzero(id_S < 0)
        if len(new_S):
            fresh, which = np.unique(key_S[new_S], return_inverse=True)
            id_S[new_S] = (len(keys) if learn else beyond) + which
            if learn and not len(keys):
                self.keys[order], self.ids[order] = fresh, np.arange(len(fresh))
            elif learn:
                merged = np.concatenate([keys, fresh])
                order_G = np.argsort(merged, kind="stable")
                self.keys[order] = merged[order_G]
                self.ids[order] = np.concatenate([ids, len(keys) + np.arange(len(fresh))])[order_G]
        return id_S


@dataclass(frozen=True)
class NumberedTexts:
    """The n-grams of M texts by number, in 16 bytes a word: for many texts, which are then counted a part at a time.

    ``id_OP``: for each length and position the number within the length of the n-gram that starts there, −1 for none.
    """

    id_OP: np.ndarray
    length_M: np.ndarray

    def counts(self, texts: slice, group_M: np.ndarray) -> Counts:
        """Returns `GramTable.add_texts` of these texts alone, whose groups (ascending, from 0) are given."""
        start = int(self.length_M[: texts.start].sum())
        length_M = self.length_M[texts]
        id_OP = self.id_OP[:, start : start + int(length_M.sum())].astype(np.int64)
        sentence_P = np.repeat(np.arange(len(length_M)), length_M)
        gram_OP = id_OP * ORDERS + np.arange(ORDERS)[:, None]
        there_OP = id_OP >= 0
        sentence_S = np.concatenate([sentence_P[there_P] for there_P in there_OP])
        return _counted(sentence_S, gram_OP[there_OP], length_M, group_M)


class Hashed:
    """Keys (not below 0) to numbers: a hash table with linear probing, all keys at once; -1 for one that is unknown."""

    def __init__(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        bits = max(4, int(3 * len(keys)).bit_length())
        self.shift, self.last = np.uint64(64 - bits), (1 << bits) - 1
        self.pair = np.full((1 << bits, 2), -1, np.int64)  # key and number side by side: one look at the memory
        self.key, self.number = self.pair[:, 0], self.pair[:, 1]
        slot_K, left = self._slot(keys), np.arange(len(keys))
        while len(left):
            free = left[self.key[slot_K[left]] < 0]
            self.key[slot_K[free]] = keys[free]  # of several for one slot the last one has it
            left = left[self.key[slot_K[left]] != keys[left]]
            slot_K[left] = (slot_K[left] + 1) & self.last
        self.number[slot_K] = numbers

    def _slot(self, keys: np.ndarray) -> np.ndarray:
        """Fibonacci hashing: the upper bits of a product with 2⁶⁴ over the golden ratio."""
        return ((keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> self.shift).view(np.int64)

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        slot_K = self._slot(keys)
        found_K2: np.ndarray = self.pair.take(slot_K, axis=0)
        there_K, number_K = found_K2[:, 0], found_K2[:, 1]
        left = np.flatnonzero(there_K != keys)
        number_K[left] = -1
        left = left[there_K[left] >= 0]
        while len(left):
            slot_K[left] = (slot_K[left] + 1) & self.last
            there = self.key[slot_K[left]]
            found = there == keys[left]
            number_K[left[found]] = self.number[slot_K[left[found]]]
            left = left[~found & (there >= 0)]
        return number_K


class _Ids:
    """Token ids to the numbers of words, all at once; ids that are no word get numbers above."""

    def __init__(self, words: dict[Hashable, int]) -> None:
        self.words = len(words)
        ids = np.fromiter(words, np.int64, len(words)) if words else np.zeros(0, np.int64)
        self.number_I = np.full(int(ids.max(initial=-1)) + 2, -1, np.int64)  # the last place is for all larger ids
        self.number_I[ids] = np.arange(len(words))

    def __len__(self) -> int:
        return self.words

    def __call__(self, token_P: np.ndarray) -> np.ndarray:
        number_P: np.ndarray = self.number_I[np.minimum(token_P, len(self.number_I) - 1)]
        strange = np.flatnonzero(number_P < 0)
        if len(strange):
            number_P[strange] = self.words + np.unique(token_P[strange], return_inverse=True)[1]
        return number_P


def sorted_unique(key_E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sorted keys the distinct ones, where each starts, and how often each stands."""
    changes = np.empty(len(key_E), dtype=bool)
    changes[:1] = True
    np.not_equal(key_E[1:], key_E[:-1], out=changes[1:])
    start = np.flatnonzero(changes)
    return key_E[start], start, np.diff(start, append=len(key_E))


def _lengths(sentences: Sequence[Sequence[Hashable]]) -> np.ndarray:
    return np.fromiter(map(len, sentences), np.int64, len(sentences))


def _counted(sentence_S: np.ndarray, gram_S: np.ndarray, length_M: np.ndarray, group_M: np.ndarray | None) -> Counts:
    """One sort of all n-grams: a key has the group above, then the n-gram, then the sentence in its group."""
    many, middle = len(length_M), int(gram_S.max(initial=0)).bit_length()
    if group_M is None:  # each sentence is a group
        key_E, _, count_E = sorted_unique(np.sort((sentence_S << middle) | gram_S))
        return Counts(key_E >> middle, key_E & ((1 << middle) - 1), count_E, length_M)
    first_M = np.searchsorted(group_M, group_M)  # the group's first sentence
    low = int(np.max(np.arange(many) - first_M, initial=0)).bit_length()
    above_M = (group_M << (low + middle)) | (np.arange(many) - first_M)
    key_E, _, count_E = sorted_unique(np.sort(above_M[sentence_S] | (gram_S << low)))
    group_E = key_E >> (low + middle)
    first_I = np.searchsorted(group_M, np.arange(int(group_M[-1]) + 1 if many else 0))
    sentence_E = first_I[group_E] + (key_E & ((1 << low) - 1))
    return Counts(sentence_E, (key_E >> low) & ((1 << middle) - 1), count_E, length_M)


# References as counted n-grams, a block of pictures at a time.


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
        """True if the counts are kept."""
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


# N-grams of references as tf-idf vectors, and how well counted captions agree with them: what CIDEr is made of.
#
# Suffixes as above; besides, R references, I pictures, N captions, C caption entries that the table knows,
# K pairs of a picture and an n-gram of its references, P pairs of a caption entry and a reference entry.

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


class ReferenceVectors:
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

    def under(self, frequency_G: np.ndarray, documents: int) -> ReferenceVectors:
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
        """Returns the place of each key, -1 for one that is not there."""
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


References = Sequence[Sequence[str]]
Sentence = Sequence[Hashable]

CIDER_D_SIGNATURE = f"cider-d,coco|sigma:6,clipped,x10|idf:references|end:out|tok:{VERSION}"
CIDER_SIGNATURE = f"cider-plain|unclipped,no-length-penalty,unstemmed,x10|idf:references|end:out|tok:{VERSION}"
END = "<eos>"  # the end token in texts; the tokenizer writes no such word
_FORMAT = "tellapart document frequencies 1"


@metric(
    "cider",
    signature=CIDER_D_SIGNATURE,
    label="CIDEr",
    help="agreement with the references (CIDEr-D), rare words weighing more",
    scale=100.0,
    bounds=(0.0, 1000.0),
    direction="higher",
    group=CLOSE,
    aliases=("ciderd",),
)
def cider_d(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """CIDEr-D (Vedantam et al. 2015, eq. 5 with clipping and σ = 6), as the COCO tools: its mean, and each caption's.

    Document frequencies come from the references given: scores of two sets of pictures cannot be compared.
    """
    return _corpus(captions, references, False)


@metric(
    "cider_plain",
    signature=CIDER_SIGNATURE,
    label="CIDEr, plain",
    help="as CIDEr, without clipping and length penalty",
    scale=100.0,
    bounds=(0.0, 1000.0),
    direction="higher",
    group=CLOSE,
)
def cider_plain(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Plain CIDEr (Vedantam et al. 2015, eq. 1-4) × 10: neither clipping nor length penalty; words are not stemmed."""
    return _corpus(captions, references, True)


def _corpus(captions: Sequence[str], references: References, plain: bool) -> tuple[float, np.ndarray]:
    return cider_of_tokens(*tokenized(captions, references), plain)


def cider_of_tokens(
    caption_tokens: list[str], reference_texts: list[list[str]], plain: bool = False
) -> tuple[float, np.ndarray]:
    """Computes `cider_d` (or `cider_plain`) of texts that are tokenised already, tokens joined by blanks."""
    score_N = _scorer(reference_texts, plain).score(caption_tokens)
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


class _CorpusScorer:
    """CIDEr among given references, a block of pictures at a time; the vectors of a single block are kept."""

    def __init__(self, reference_texts: list[list[str]], plain: bool) -> None:
        self._references, self._plain = counted(reference_texts), plain
        table = self._references.table
        if self._references.in_one_block:
            (block,) = self._references.blocks()
            frequency_G = documents_with(table, block.counts, block.image_R)
        else:
            frequency_G = np.zeros(table.size)
            for block in self._references.blocks():
                grams, documents = documents_of(table, block.counts, block.image_R)
                frequency_G[grams] += documents
        self._idf_G = inverse_frequencies(frequency_G, self._references.pictures)
        self._whole: ReferenceVectors | None = None

    def score(self, caption_tokens: list[str]) -> np.ndarray:
        """The score of each picture's caption."""
        parts = []
        for block in self._references.blocks():
            sentences = [text.split() for text in caption_tokens[block.pictures]]
            parts.append(self._vectors(block).score(sentences, np.arange(len(sentences))))
        return np.concatenate(parts)

    def _vectors(self, block: CountedBlock) -> ReferenceVectors:
        if self._whole is not None:
            return self._whole
        pictures = self._references.pictures
        made = ReferenceVectors(self._references.table, block.counts, block.image_R, self._idf_G, pictures, self._plain)
        if self._references.in_one_block:
            self._whole = made
        return made


@recent
def _scorer(reference_texts: list[list[str]], plain: bool) -> _CorpusScorer:
    return _CorpusScorer(reference_texts, plain)


class CiderD:
    """CIDEr-D of captions against references that stay: texts, or rows of token ids.

    references: for each picture its texts, or its rows of token ids (numbers).
    idf: where document frequencies come from: "references" (those given), "batch" (the references of the pictures
    of each call, as paper 2's program has it), a training set's references (in the same form), or frozen
    `DocumentFrequencies`. end: whether the end token is a word of the string; texts get one each, of token ids a row
    that has ``end_token`` ends there, and keeps it or not; references always end. plain: plain CIDEr.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Any]],
        *,
        idf: str | Sequence[Sequence[Any]] | DocumentFrequencies = "references",
        end: bool = False,
        end_token: int | None = None,
        plain: bool = False,
    ) -> None:
        check(references, references)
        self.end, self.end_token, self.plain = end, end_token, plain
        self.ids = not isinstance(references[0][0], str) if len(references) else False
        if self.ids and end and end_token is None:
            raise UsageError("the end token is part of the string, but which one is missing; give end_token=ID")
        if isinstance(idf, str) and idf not in ("references", "batch"):
            raise UsageError(f"idf is '{idf}'; expected 'references', 'batch', references, or DocumentFrequencies")
        self.pictures = len(references)
        self._reference_rows = (
            [self._rows(texts, is_reference=True) for texts in references] if self.ids else self._texts(references)
        )
        self._image_R = np.repeat(np.arange(len(references)), [len(rows) for rows in self._reference_rows])
        flat = [row for rows in self._reference_rows for row in rows]
        if isinstance(idf, str):
            table = GramTable()
            counts = table.add(flat, self._image_R)
            frequencies, self.source, documents = documents_with(table, counts, self._image_R), idf, len(references)
        else:
            frozen = idf if isinstance(idf, DocumentFrequencies) else self.frequencies(idf)
            if frozen.end != end or frozen.ids != self.ids:
                raise UsageError(
                    f"document frequencies are of {_kind(frozen.ids, frozen.end)}, references of "
                    f"{_kind(self.ids, end)}; make both the same"
                )
            table = frozen.table()
            counts = table.add(flat, self._image_R)
            frequencies = np.concatenate([frozen.frequency_G, np.zeros(table.size - len(frozen.frequency_G))])
            self.source, documents = frozen.name, frozen.documents
        idf_G = inverse_frequencies(frequencies, documents)
        self._vectors = ReferenceVectors(table, counts, self._image_R, idf_G, documents, plain)
        self._vectors.quicken()

    def frequencies(self, references: Sequence[Sequence[Any]], name: str = "training") -> DocumentFrequencies:
        """Document frequencies of other references, in the form that this object's have."""
        reference_texts = (
            [self._rows(texts, is_reference=True) for texts in references] if self.ids else self._texts(references)
        )
        return DocumentFrequencies.of(reference_texts, name, end=self.end, ids=self.ids)

    @property
    def signature(self) -> str:
        """Names the variant, the document frequencies and the tokenizer: numbers compare where these are equal."""
        variant = "cider-plain|unclipped,no-length-penalty,unstemmed,x10" if self.plain else "cider-d|sigma:6,clipped"
        idf = f"{self.source},n={self._vectors.documents}" if self.source != "batch" else "batch"
        cut = "token-ids" if self.ids else VERSION
        return f"{variant}|idf:{idf}|end:{'in' if self.end else 'out'}|tok:{cut}|tellapart:{__version__}"

    def __call__(self, captions: Sequence[Any], pictures: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """The scores of captions, 0 to 10: texts, or rows of token ids (lists, or a 2-D array cut at the end token).

        ``pictures`` says for each caption which picture's references it is compared with (its number); without it,
        the captions are S for each picture, picture by picture.
        """
        if pictures is None:
            if not self.pictures or len(captions) % self.pictures:
                raise UsageError(
                    f"{len(captions)} captions for {self.pictures} pictures; give equally many each, or their pictures"
                )
            pictures = np.repeat(np.arange(self.pictures), len(captions) // self.pictures)
        image_N = np.asarray(pictures, dtype=np.int64)
        if len(image_N) != len(captions):
            raise UsageError(f"{len(captions)} captions and {len(image_N)} picture numbers; give one for each caption")
        if len(image_N) and (image_N.min() < 0 or image_N.max() >= self.pictures):
            raise UsageError(
                f"picture numbers go from 0 to {self.pictures - 1}; found {image_N.min()}, {image_N.max()}"
            )
        vectors = self._batch(image_N) if self.source == "batch" else self._vectors
        if self.ids:
            return vectors.scores(vectors.table.look_up_ids(*self._tokens(captions)), image_N)
        return vectors.score(self._cut(list(captions)), image_N)

    def _batch(self, image_N: np.ndarray) -> ReferenceVectors:
        """The same references under the document frequencies of this batch's pictures."""
        shown = np.zeros(self.pictures, dtype=bool)
        shown[image_N] = True
        whole = self._vectors
        frequency_G = documents_with(whole.table, whole.counts, self._image_R, shown[self._image_R])
        return whole.under(frequency_G, int(shown.sum()))

    def _texts(self, references: Sequence[Sequence[str]]) -> list[list[Sentence]]:
        flat = iter(self._cut([text for texts in references for text in texts]))
        return [[next(flat) for _ in texts] for texts in references]

    def _cut(self, texts: Sequence[str]) -> list[Sentence]:
        return [text.split() + [END] * self.end for text in ptb_tokenize(texts)]

    def _tokens(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows of token ids as one array, and their lengths."""
        if self.end_token is not None and hasattr(rows, "shape"):  # a tensor or an array, rows by tokens
            token_NT = np.asarray(rows, dtype=np.int64)
            end_NT = token_NT == self.end_token
            kept_NT = np.cumsum(end_NT, axis=1) - (end_NT if self.end else 0) == 0
            return token_NT[kept_NT], kept_NT.sum(1)
        lists = rows if self.end_token is None and isinstance(rows, list) else self._rows(rows)
        length_M = np.fromiter(map(len, lists), np.int64, len(lists))
        return np.fromiter(chain.from_iterable(lists), np.int64, int(length_M.sum())), length_M

    def _rows(self, rows: Any, *, is_reference: bool = False) -> list[Any]:
        lists: list[list[int]] = rows.tolist() if hasattr(rows, "tolist") else [_listed(row) for row in rows]
        if self.end_token is None:
            return list(lists)
        found = []
        for row in lists:
            place = row.index(self.end_token) if self.end_token in row else None
            ended = place is not None or is_reference
            found.append(row[:place] + [self.end_token] * (self.end and ended))
        return found


def _listed(row: Any) -> list[int]:
    return row.tolist() if hasattr(row, "tolist") else list(row)


def _kind(ids: bool, end: bool) -> str:
    return f"{'token ids' if ids else 'texts'} {'with' if end else 'without'} the end token"


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many pictures' references each n-gram occurs, frozen: one line of JSON in a file.

    An n-gram is written as the number of the n-gram one shorter that it begins with, and that of its last word.
    """

    words: list[Any]
    grams: list[np.ndarray]  # for each length G×2: first n − 1 words (their number), last word
    frequency_G: np.ndarray
    documents: int
    name: str
    end: bool
    ids: bool

    @classmethod
    def of(
        cls, reference_texts: Sequence[Sequence[Sentence]], name: str, *, end: bool = False, ids: bool = False
    ) -> DocumentFrequencies:
        """Count references that are already cut into words."""
        table = GramTable()
        image_R = np.repeat(np.arange(len(reference_texts)), [len(rows) for rows in reference_texts])
        counts = table.add([row for rows in reference_texts for row in rows], image_R)
        grams = []
        for keys, numbers in zip(table.keys, table.ids, strict=True):
            pair_G2 = np.zeros((len(keys), 2), np.int64)
            pair_G2[numbers] = np.stack([keys // WORDS, keys % WORDS], axis=1)
            grams.append(pair_G2)
        return cls(
            list(table.words), grams, documents_with(table, counts, image_R), len(reference_texts), name, end, ids
        )

    def table(self) -> GramTable:
        """A table that knows these n-grams by the same numbers."""
        table = GramTable({word: number for number, word in enumerate(self.words)})
        for order, pair_G2 in enumerate(self.grams):
            keys = pair_G2[:, 0] * WORDS + pair_G2[:, 1]
            table.ids[order] = np.argsort(keys, kind="stable")
            table.keys[order] = keys[table.ids[order]]
        return table

    def save(self, path: str | Path) -> None:
        """Write them to a JSON file."""
        content = {
            "format": _FORMAT,
            "name": self.name,
            "documents": self.documents,
            "end": self.end,
            "token_ids": self.ids,
            "tokenizer": None if self.ids else VERSION,
            "words": self.words,
            "grams": [pair_G2.T.tolist() for pair_G2 in self.grams],
            "frequencies": self.frequency_G.astype(int).tolist(),
        }
        Path(path).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> DocumentFrequencies:
        """Read what `save` wrote. Raises `UsageError` for another file, or another tokenizer's."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as document frequencies ({error})") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise UsageError(f"{path}: has no document frequencies; expected a file of DocumentFrequencies.save")
        if not content["token_ids"] and content["tokenizer"] != VERSION:
            raise UsageError(
                f"{path}: was counted by tokenizer '{content['tokenizer']}', here is '{VERSION}'; save again"
            )
        return cls(
            content["words"],
            [np.array(pairs, dtype=np.int64).reshape(2, -1).T for pairs in content["grams"]],
            np.array(content["frequencies"], dtype=float),
            content["documents"],
            content["name"],
            content["end"],
            content["token_ids"],
        )
