"""Sentences as counted n-grams in numpy: every n-gram has a number, and equal n-grams have the same one.

An n-gram is known by the number of its first n − 1 words and that of its last word, so one integer is enough at
every length, for any vocabulary. Numbers say the length too: ``number % 4 + 1``. Suffixes: P positions (words of all
sentences), E entries (an n-gram in a sentence), M sentences, G numbers of n-grams.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from tellapart.metrics.ptb import BLOCK, recent

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
        """What `GramTable.add_texts` gives for these texts alone, whose groups (ascending, from 0) are given."""
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


# References as counted n-grams, a block of pictures at a time, shared by BLEU and CIDEr.


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
