"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr, with configurable document frequencies.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10. `CiderD`
stores references and document frequencies for use as a reward. An n-gram that occurs in every picture's references
contributes 0, so the score for a single picture is always 0.

Array suffixes: M sentences, P positions (all words in all sentences), S positions where an n-gram starts, G distinct
n-grams, E entries (an n-gram in a sentence), C a caption's entries, X pairs of entries, N captions, R references.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.corpus_scores import with_mean
from tellapart.metrics.inputs import References, check
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, ptb_tokenize, tokenized
from tellapart.metrics.registry import metric
from tellapart.metrics.word_hashes import find_hashes, word_hash

Sentence = str | Sequence[int]  # words joined by spaces, or token ids

ORDERS = 4
SIGMA = 6.0
END = "<eos>"  # represents the end token in text; the tokenizer never outputs this word
CIDER_D_SIGNATURE = f"cider-d,coco|sigma:6,clipped,x10|idf:references|end:out|tok:{VERSION}"
CIDER_SIGNATURE = f"cider-plain|unclipped,no-length-penalty,unstemmed,x10|idf:references|end:out|tok:{VERSION}"
_FORMAT = "tellapart document frequencies 2"
_PICTURES_AT_ONCE = 4096  # limits the memory needed for many captions
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd multiplier of the polynomial that hashes an n-gram


_word_hash = lru_cache(maxsize=1 << 20)(word_hash)


class NgramCounts(NamedTuple):
    """How often each n-gram of one length occurs in each sentence, sorted by n-gram, then by sentence.

    hash_G: a 64-bit hash of each n-gram, ascending.
    """

    hash_G: np.ndarray
    gram_E: np.ndarray
    sentence_E: np.ndarray
    count_E: np.ndarray


def count_ngrams(sentences: Iterable[Sentence]) -> tuple[np.ndarray, list[NgramCounts]]:
    """Returns length_M, the sentences' numbers of words, and the counts of their n-grams for n = 1 to 4."""
    rows = [sentence.split() if isinstance(sentence, str) else sentence for sentence in sentences]
    length_M = np.fromiter(map(len, rows), np.int64, len(rows))
    hash_P = np.fromiter(map(_word_hash, chain.from_iterable(rows)), np.uint64)
    sentence_P = np.repeat(np.arange(len(rows)), length_M)
    left_P = np.repeat(np.cumsum(length_M), length_M) - np.arange(len(hash_P))  # words to the sentence's end
    key_P, counts = np.zeros(len(hash_P), np.uint64), []
    for order in range(ORDERS):
        start_S = np.flatnonzero(left_P > order)
        key_P[start_S] = key_P[start_S] * _FACTOR + hash_P[start_S + order]
        hash_G, gram_S = np.unique(key_P[start_S], return_inverse=True)
        entry_E, count_E = np.unique(gram_S * len(rows) + sentence_P[start_S], return_counts=True)
        counts.append(NgramCounts(hash_G, *np.divmod(entry_E, max(len(rows), 1)), count_E))
    return length_M, counts


def length_penalty(difference: np.ndarray) -> np.ndarray:
    """Computes the Gaussian length penalty for differences in length."""
    difference = np.abs(difference)
    penalty: np.ndarray = np.exp(-(np.arange(difference.max(initial=0) + 1) ** 2) / (2 * SIGMA**2))
    return np.asarray(penalty[difference])


def _flatten(references: Sequence[Sequence[Sentence]]) -> tuple[list[Sentence], np.ndarray]:
    """Returns the references of all pictures, with the index of each one's picture."""
    return list(chain.from_iterable(references)), np.repeat(np.arange(len(references)), list(map(len, references)))


@dataclass(frozen=True)
class DocumentFrequencies:
    """Frozen document frequencies: for each n-gram, the number of pictures whose references contain it.

    hash_G: 64-bit hashes of the n-grams, ascending.
    """

    hash_G: np.ndarray
    frequency_G: np.ndarray
    documents: int
    name: str
    end: bool
    ids: bool

    @classmethod
    def of(
        cls, references: Sequence[Sequence[Sentence]], name: str, *, end: bool = False, ids: bool = False
    ) -> DocumentFrequencies:
        """Counts the n-grams in references that are already tokenized."""
        hashes = [np.zeros(0, np.uint64)]  # of each n-gram, once per picture
        for start in range(0, len(references), _PICTURES_AT_ONCE):
            texts, picture_R = _flatten(references[start : start + _PICTURES_AT_ONCE])
            for counts in count_ngrams(texts)[1]:
                pair_E = counts.gram_E * _PICTURES_AT_ONCE + picture_R[counts.sentence_E]  # ascending
                hashes.append(counts.hash_G[counts.gram_E[np.diff(pair_E, prepend=-1) != 0]])
        return cls(*np.unique(np.concatenate(hashes), return_counts=True), len(references), name, end, ids)

    def idf(self, hash_G: np.ndarray) -> np.ndarray:
        """Computes the inverse document frequency of n-grams. An unknown n-gram counts as if one picture had it."""
        row_G = find_hashes(self.hash_G, hash_G)
        frequency_G = np.ones(len(hash_G))
        frequency_G[row_G >= 0] = self.frequency_G[row_G[row_G >= 0]]
        idf_G: np.ndarray = np.log(max(self.documents, 1)) - np.log(frequency_G)
        return idf_G

    def save(self, path: str | Path) -> None:
        """Writes the frequencies to a file, as one line of JSON."""
        content = {
            "format": _FORMAT,
            "name": self.name,
            "documents": self.documents,
            "end": self.end,
            "token_ids": self.ids,
            "tokenizer": None if self.ids else VERSION,
            "ngrams": self.hash_G.tolist(),
            "frequencies": self.frequency_G.tolist(),
        }
        Path(path).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> DocumentFrequencies:
        """Loads a file that `save` wrote. Raises `UsageError` for any other file, or if it was written with another
        tokenizer.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read document frequencies from {path} ({error})") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise UsageError(
                f"{path} contains no document frequencies; expected a file written by this version's "
                "DocumentFrequencies.save"
            )
        if not content["token_ids"] and content["tokenizer"] != VERSION:
            raise UsageError(
                f"{path} was counted with tokenizer '{content['tokenizer']}', but this version uses '{VERSION}'; "
                "compute and save it again"
            )
        hash_G, frequency_G = np.array(content["ngrams"], np.uint64), np.array(content["frequencies"], np.int64)
        return cls(hash_G, frequency_G, content["documents"], content["name"], content["end"], content["token_ids"])


def _scores(
    captions: Sequence[Sentence],
    picture_N: np.ndarray,
    references: Sequence[Sequence[Sentence]],
    frequencies: DocumentFrequencies,
    plain: bool = False,
) -> np.ndarray:
    """Computes each caption's score, 0 to 10. ``picture_N``: each caption's picture, ascending."""
    scores = [np.zeros(0)]
    for start in range(0, len(references), _PICTURES_AT_ONCE):
        texts, picture_R = _flatten(references[start : start + _PICTURES_AT_ONCE])
        first, last = np.searchsorted(picture_N, [start, start + _PICTURES_AT_ONCE])
        here_N, own = picture_N[first:last] - start, captions[first:last]
        total_N = _similarity([*own, *texts], len(own), np.concatenate([here_N, picture_R]), frequencies, plain)
        scores.append(10.0 * total_N / ORDERS / np.bincount(picture_R)[here_N])
    return np.concatenate(scores)


def _similarity(
    sentences: Sequence[Sentence], N: int, picture_M: np.ndarray, frequencies: DocumentFrequencies, plain: bool
) -> np.ndarray:
    """Sums the similarities between each of N captions and its references, over references and n-gram lengths.

    sentences: the captions, then the references. ``picture_M``: their pictures, ascending in both.
    """
    length_M, counts_O = count_ngrams(sentences)
    total_N = np.zeros(N)
    for hash_G, gram_E, sentence_E, count_E in counts_O:
        weight_E = count_E * frequencies.idf(hash_G)[gram_E]
        norm_M = np.sqrt(np.bincount(sentence_E, weight_E * weight_E, len(picture_M)))
        norm_M[norm_M == 0] = 1.0  # avoids division by 0, as the tool does
        pair_E = gram_E * _PICTURES_AT_ONCE + picture_M[sentence_E]
        own_C, other_E = np.flatnonzero(sentence_E < N), np.flatnonzero(sentence_E >= N)
        first_C, last_C = (np.searchsorted(pair_E[other_E], pair_E[own_C], side) for side in ("left", "right"))
        many_C = last_C - first_C  # number of references with the n-gram
        own_X = np.repeat(own_C, many_C)
        other_X = other_E[np.arange(len(own_X)) + np.repeat(first_C - (np.cumsum(many_C) - many_C), many_C)]
        caption_X, reference_X = sentence_E[own_X], sentence_E[other_X]
        product_X = weight_E[own_X]
        if not plain:
            penalty_X = length_penalty(length_M[caption_X] - length_M[reference_X])
            product_X = penalty_X * np.minimum(product_X, weight_E[other_X])
        product_X *= weight_E[other_X] / (norm_M[caption_X] * norm_M[reference_X])
        total_N += np.bincount(caption_X, product_X, N)
    return total_N


@metric(
    "cider",
    signature=CIDER_D_SIGNATURE,
    label="CIDEr",
    help="agreement with the references, with more weight on rare words (CIDEr-D)",
    scale=100.0,
    bounds=(0.0, 1000.0),
    direction="higher",
    group=CLOSE,
    aliases=("ciderd",),
)
def cider_d(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Computes CIDEr-D like the COCO tools (Vedantam et al. 2015, eq. 5 with clipping and σ = 6). Returns the mean and
    each caption's score.

    Document frequencies come from the given references, so scores on different sets of pictures are not comparable.
    """
    return cider_of_tokens(*tokenized(captions, references))


@metric(
    "cider_plain",
    signature=CIDER_SIGNATURE,
    label="CIDEr, plain",
    help="CIDEr without clipping or length penalty",
    scale=100.0,
    bounds=(0.0, 1000.0),
    direction="higher",
    group=CLOSE,
)
def cider_plain(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Computes plain CIDEr × 10, without clipping, length penalty or stemming (Vedantam et al. 2015, eq. 1-4)."""
    return cider_of_tokens(*tokenized(captions, references), plain=True)


def cider_of_tokens(
    caption_tokens: Sequence[str], reference_texts: Sequence[Sequence[str]], plain: bool = False
) -> tuple[float, np.ndarray]:
    """Computes `cider_d` (or `cider_plain`) from tokenized texts, in which spaces separate the tokens."""
    frequencies = DocumentFrequencies.of(reference_texts, "references")
    return with_mean(_scores(caption_tokens, np.arange(len(caption_tokens)), reference_texts, frequencies, plain))


class CiderD:
    """CIDEr-D with fixed references. Captions and references are texts or rows of token ids.

    references: each picture's reference texts, or its references as rows of token ids.
    idf: the source of the document frequencies. "references" uses the references above, "batch" uses the references of
        the pictures in each call (as in paper 2's code). Alternatively, a training set's references in the same form,
        or frozen `DocumentFrequencies`.
    end: whether the end token counts as a word. If so, an end token is added to every text and every reference, and a
        row of token ids keeps its ``end_token``. A caption's row without an end token is a truncated caption, so none
        is added.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Any]],
        *,
        idf: str | Sequence[Sequence[Any]] | DocumentFrequencies = "references",
        end: bool = False,
        end_token: int | None = None,
    ) -> None:
        check(references, references)
        self.end, self.end_token = end, end_token
        self.ids = not isinstance(references[0][0], str) if len(references) else False
        if self.ids and end and end_token is None:
            raise UsageError("end=True with token ids requires end_token; pass end_token=ID")
        self._references = self._cut_references(references)
        self._frequencies: DocumentFrequencies | None = None  # None: those of each call's pictures
        if isinstance(idf, DocumentFrequencies):
            self._frequencies = idf
        elif not isinstance(idf, str):
            self._frequencies = self.frequencies(idf)
        elif idf == "references":
            self._frequencies = DocumentFrequencies.of(self._references, idf, end=end, ids=self.ids)
        elif idf != "batch":
            raise UsageError(f"idf is '{idf}'; expected 'references', 'batch', references, or DocumentFrequencies")
        if self._frequencies is not None and (self._frequencies.end, self._frequencies.ids) != (end, self.ids):
            raise UsageError(
                f"document frequencies count {_kind(self._frequencies.ids, self._frequencies.end)}, but the "
                f"references contain {_kind(self.ids, end)}; use the same kind for both"
            )

    def frequencies(self, references: Sequence[Sequence[Any]], name: str = "training") -> DocumentFrequencies:
        """Computes document frequencies from other references, which must have the same form as this object's
        references.
        """
        return DocumentFrequencies.of(self._cut_references(references), name, end=self.end, ids=self.ids)

    @property
    def signature(self) -> str:
        """Identifies the document frequencies and the tokenizer. Scores are comparable only if their signatures are
        equal.
        """
        idf = "batch" if self._frequencies is None else f"{self._frequencies.name},n={self._frequencies.documents}"
        cut = "token-ids" if self.ids else VERSION
        return f"cider-d|sigma:6,clipped|idf:{idf}|end:{'in' if self.end else 'out'}|tok:{cut}|tellapart:{__version__}"

    def __call__(self, captions: Sequence[Any], pictures: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """Computes the scores of captions, 0 to 10. Captions are texts or rows of token ids (lists or a 2-D array).

        pictures: the index of each caption's picture [default: each picture has S consecutive captions].
        """
        known = len(self._references)
        if pictures is None:
            if not known or len(captions) % known:
                raise UsageError(
                    f"Expected the same number of captions for each of {known} pictures, got {len(captions)} "
                    "captions; pass the pictures argument to assign captions to pictures"
                )
            pictures = np.repeat(np.arange(known), len(captions) // known)
        image_N = np.asarray(pictures, dtype=np.int64)
        if len(image_N) != len(captions):
            raise UsageError(
                f"Expected one picture number per caption; got {len(captions)} captions and {len(image_N)} "
                "picture numbers"
            )
        if len(image_N) and (image_N.min() < 0 or image_N.max() >= known):
            raise UsageError(
                f"Picture numbers must be between 0 and {known - 1}; got {image_N.min()} to {image_N.max()}"
            )
        shown, picture_N = np.unique(image_N, return_inverse=True)
        order_N = np.argsort(picture_N, kind="stable")
        rows, references = self._cut(captions), [self._references[image] for image in shown]
        frequencies = self._frequencies or DocumentFrequencies.of(references, "batch", end=self.end, ids=self.ids)
        score_N = np.empty(len(image_N))
        score_N[order_N] = _scores([rows[place] for place in order_N], picture_N[order_N], references, frequencies)
        return score_N

    def _cut_references(self, references: Sequence[Sequence[Any]]) -> list[list[Sentence]]:
        flat = iter(self._cut([text for texts in references for text in texts], is_reference=True))
        return [[next(flat) for _ in texts] for texts in references]

    def _cut(self, texts: Sequence[Any], *, is_reference: bool = False) -> list[Sentence]:
        """Tokenizes texts, or cuts rows of token ids off at the end token."""
        if not self.ids:
            return [f"{text} {END}" if self.end else text for text in ptb_tokenize(texts)]
        rows = [row.tolist() if hasattr(row, "tolist") else list(row) for row in texts]
        end = self.end_token
        if end is None:
            return rows
        ends = [[*row, end].index(end) for row in rows]
        return [
            row[:at] + [end] * (self.end and (is_reference or at < len(row)))
            for row, at in zip(rows, ends, strict=True)
        ]


def _kind(ids: bool, end: bool) -> str:
    return f"{'token ids' if ids else 'texts'} {'with' if end else 'without'} the end token"
