"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr, with configurable document frequencies.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10. `CiderD`
stores references and document frequencies for use as a reward. An n-gram that occurs in every picture's references
contributes 0, so the score for a single picture is always 0.

Array suffixes: M sentences, P positions (all words in all sentences), G distinct n-grams, E entries (an n-gram in a
sentence), N captions, R references.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.inputs import References, check
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, ptb_tokenize, tokenized
from tellapart.metrics.registry import metric

Sentence = str | Sequence[int]  # words joined by spaces, or token ids

ORDERS = 4
SIGMA = 6.0
END = "<eos>"  # represents the end token in text; the tokenizer never outputs this word
CIDER_D_SIGNATURE = f"cider-d,coco|sigma:6,clipped,x10|idf:references|end:out|tok:{VERSION}"
CIDER_SIGNATURE = f"cider-plain|unclipped,no-length-penalty,unstemmed,x10|idf:references|end:out|tok:{VERSION}"
_FORMAT = "tellapart document frequencies 2"
_PICTURES_AT_ONCE = 4096  # limits the memory needed for many captions
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd multiplier of the polynomial that hashes an n-gram


@dataclass(frozen=True)
class Grams:
    """The n-grams in M sentences, indexed from 0: first all unigrams, then all bigrams, and so on.

    gram_OP: for each length and each position, the index of the n-gram that starts there; −1 if the sentence ends
        first.
    hash_G: a 64-bit hash of each n-gram, ascending among n-grams of the same length.
    first_O: the first index for each length.
    """

    gram_OP: np.ndarray
    length_M: np.ndarray
    hash_G: np.ndarray
    first_O: np.ndarray

    @classmethod
    def of(cls, sentences: Iterable[Sentence]) -> Grams:
        """Collects the n-grams in sentences, and assigns an index to each distinct n-gram."""
        lengths: list[int] = []

        def words(sentence: Sentence) -> Sequence[str | int]:
            found = sentence.split() if isinstance(sentence, str) else sentence
            lengths.append(len(found))
            return found

        hash_P = np.fromiter(map(word_hash, chain.from_iterable(map(words, sentences))), np.uint64)
        length_M = np.array(lengths, np.int64)
        left_P = np.repeat(np.cumsum(length_M), length_M) - np.arange(len(hash_P))  # words to the sentence's end
        gram_OP = np.full((ORDERS, len(hash_P)), -1, np.int32)
        key_P, hashes, first = np.zeros(len(hash_P), np.uint64), [], [0]
        for order in range(ORDERS):
            start_S = np.flatnonzero(left_P > order)
            key_P[start_S] = key_P[start_S] * _FACTOR + hash_P[start_S + order]
            distinct, number_S = np.unique(key_P[start_S], return_inverse=True)
            gram_OP[order, start_S] = number_S + first[-1]
            hashes.append(distinct)
            first.append(first[-1] + len(distinct))
        return cls(gram_OP, length_M, np.concatenate(hashes), np.array(first[:-1]))

    def __getitem__(self, sentences: slice) -> Grams:
        """Returns a slice of the sentences. The n-gram indices stay the same."""
        length_M = self.length_M[sentences]
        start = int(self.length_M[: sentences.start or 0].sum())
        return Grams(self.gram_OP[:, start : start + length_M.sum()], length_M, self.hash_G, self.first_O)

    def entries(self, picture_M: np.ndarray) -> Entries:
        """Counts the n-grams in each sentence. ``picture_M``: the index of each sentence's picture."""
        there_OP = self.gram_OP >= 0
        sentence_OP = np.broadcast_to(np.repeat(np.arange(len(self.length_M)), self.length_M), there_OP.shape)
        gram_S, sentence_S = self.gram_OP[there_OP].astype(np.int64), sentence_OP[there_OP]
        size, sentences = len(self.hash_G), max(len(self.length_M), 1)
        key_S = np.sort((picture_M[sentence_S] * size + gram_S) * sentences + sentence_S)
        start_E = np.flatnonzero(np.diff(key_S, prepend=-1))
        pair_E, sentence_E = np.divmod(key_S[start_E], sentences)
        gram_E = pair_E % max(size, 1)
        return Entries(pair_E, gram_E, sentence_E, np.diff(start_E, append=len(key_S)))

    def weights(self, entries: Entries, idf_G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Computes each entry's tf-idf weight, and the norm of the vector of all n-grams of that length in the same
        sentence.
        """
        weight_E = entries.count_E * idf_G[entries.gram_E]
        cell_E = entries.sentence_E * ORDERS + np.searchsorted(self.first_O, entries.gram_E, "right") - 1
        norm = np.sqrt(np.bincount(cell_E, weight_E * weight_E))
        norm[norm == 0] = 1.0  # avoids division by 0, as the tool does
        return weight_E, norm[cell_E]


@dataclass(frozen=True)
class Entries:
    """N-gram counts in sentences, sorted by picture, n-gram and sentence. ``pair_E`` is picture · G + n-gram."""

    pair_E: np.ndarray
    gram_E: np.ndarray
    sentence_E: np.ndarray
    count_E: np.ndarray


@lru_cache(maxsize=1 << 20)
def word_hash(word: str | int) -> int:
    """Returns a 64-bit hash that is the same in every process."""
    return int.from_bytes(blake2b(str(word).encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def length_penalty(difference: np.ndarray) -> np.ndarray:
    """Computes the Gaussian length penalty for differences in length."""
    difference = np.abs(difference)
    penalty: np.ndarray = np.exp(-(np.arange(difference.max(initial=0) + 1) ** 2) / (2 * SIGMA**2))
    return np.asarray(penalty[difference])


def _blocks(size_N: np.ndarray) -> Iterator[tuple[int, int, slice, np.ndarray]]:
    """Yields ranges of pictures, each with the slice of its texts and each text's picture, counting from 0 in each
    range.
    """
    end_N = np.cumsum(size_N)
    for start in range(0, len(size_N), _PICTURES_AT_ONCE):
        stop = min(start + _PICTURES_AT_ONCE, len(size_N))
        texts = slice(int(end_N[start] - size_N[start]), int(end_N[stop - 1]))
        yield start, stop, texts, np.repeat(np.arange(stop - start), size_N[start:stop])


def _document_frequencies(references: Grams, size_N: np.ndarray) -> np.ndarray:
    """Counts the pictures whose references contain each n-gram. ``size_N``: the number of references per picture."""
    frequency_G = np.zeros(len(references.hash_G), np.int64)
    for _, _, texts, picture_R in _blocks(size_N):
        entries = references[texts].entries(picture_R)
        np.add.at(frequency_G, entries.gram_E[np.diff(entries.pair_E, prepend=-1) != 0], 1)
    return frequency_G


def _score(
    captions: Iterable[Sentence],
    picture_N: np.ndarray,
    references: Sequence[Sequence[Sentence]],
    plain: bool,
    frozen: DocumentFrequencies | None = None,
) -> np.ndarray:
    """Computes each caption's score. ``picture_N``: each caption's picture, ascending.

    frozen: precomputed document frequencies. If None, they are computed from the references.
    """
    size_N = np.array([len(texts) for texts in references], np.int64)
    grams = Grams.of(chain(captions, chain.from_iterable(references)))
    own, others = grams[: len(picture_N)], grams[len(picture_N) :]
    if frozen is None:
        frequency_G, documents = _document_frequencies(others, size_N), len(references)
    else:
        frequency_G, documents = frozen.of_hashes(grams.hash_G), frozen.documents
    idf_G = np.log(max(documents, 1)) - np.log(np.maximum(frequency_G, 1))
    scores = [np.zeros(0)]
    for start, stop, texts, picture_R in _blocks(size_N):
        first, last = np.searchsorted(picture_N, [start, stop])
        here_N = picture_N[first:last] - start
        scores.append(_score_block(own[first:last], here_N, others[texts], picture_R, idf_G, plain))
    return np.concatenate(scores)


def _score_block(
    captions: Grams, picture_N: np.ndarray, references: Grams, picture_R: np.ndarray, idf_G: np.ndarray, plain: bool
) -> np.ndarray:
    """Computes 10 × the similarity between captions and their references, averaged over references and n-gram
    lengths.
    """
    own, other = captions.entries(picture_N), references.entries(picture_R)
    (weight_C, norm_C), (weight_E, norm_E) = captions.weights(own, idf_G), references.weights(other, idf_G)
    first_C = np.searchsorted(other.pair_E, own.pair_E)
    many_C = np.searchsorted(other.pair_E, own.pair_E, "right") - first_C  # number of references with the n-gram
    caption_P = np.repeat(np.arange(len(many_C)), many_C)
    reference_P = np.arange(len(caption_P)) + np.repeat(first_C - (np.cumsum(many_C) - many_C), many_C)
    product_P = weight_C[caption_P]
    if not plain:
        length_P = captions.length_M[own.sentence_E[caption_P]]
        penalty_P = length_penalty(length_P - references.length_M[other.sentence_E[reference_P]])
        product_P = penalty_P * np.minimum(product_P, weight_E[reference_P])
    product_P *= weight_E[reference_P] / (norm_C[caption_P] * norm_E[reference_P])
    total_N = np.bincount(own.sentence_E[caption_P], product_P, minlength=len(picture_N))
    score_N: np.ndarray = 10.0 * total_N / ORDERS / np.bincount(picture_R)[picture_N]
    return score_N


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
    score_N = _score(caption_tokens, np.arange(len(caption_tokens)), reference_texts, plain)
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


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
        if isinstance(idf, str) and idf not in ("references", "batch"):
            raise UsageError(f"idf is '{idf}'; expected 'references', 'batch', references, or DocumentFrequencies")
        self._references = self._cut_references(references)
        self._frequencies: DocumentFrequencies | None = None
        if isinstance(idf, DocumentFrequencies):
            self._frequencies = idf
        elif idf == "references":
            self._frequencies = DocumentFrequencies.of(self._references, "references", end=end, ids=self.ids)
        elif not isinstance(idf, str):
            self._frequencies = self.frequencies(idf)
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
        score_N = np.empty(len(image_N))
        score_N[order_N] = _score(
            [rows[place] for place in order_N], picture_N[order_N], references, False, self._frequencies
        )
        return score_N

    def _cut_references(self, references: Sequence[Sequence[Any]]) -> list[list[Sentence]]:
        flat = iter(self._cut([text for texts in references for text in texts], is_reference=True))
        return [[next(flat) for _ in texts] for texts in references]

    def _cut(self, texts: Sequence[Any], *, is_reference: bool = False) -> list[Sentence]:
        """Tokenizes texts, or cuts rows of token ids off at the end token."""
        if not self.ids:
            return [f"{text} {END}" if self.end else text for text in ptb_tokenize(texts)]
        rows = [row.tolist() if hasattr(row, "tolist") else list(row) for row in texts]
        if self.end_token is None:
            return rows
        places = [row.index(self.end_token) if self.end_token in row else None for row in rows]
        return [
            row[:place] + [self.end_token] * (self.end and (place is not None or is_reference))
            for row, place in zip(rows, places, strict=True)
        ]


def _kind(ids: bool, end: bool) -> str:
    return f"{'token ids' if ids else 'texts'} {'with' if end else 'without'} the end token"


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
        grams = Grams.of(chain.from_iterable(references))
        frequency_G = _document_frequencies(grams, np.array([len(texts) for texts in references], np.int64))
        order_G = np.argsort(grams.hash_G)
        return cls(grams.hash_G[order_G], frequency_G[order_G], len(references), name, end, ids)

    def of_hashes(self, hash_G: np.ndarray) -> np.ndarray:
        """Returns each n-gram's frequency, or 0 for an unknown n-gram."""
        if not len(self.hash_G):
            return np.zeros(len(hash_G), np.int64)
        place_G = np.minimum(np.searchsorted(self.hash_G, hash_G), len(self.hash_G) - 1)
        return np.where(self.hash_G[place_G] == hash_G, self.frequency_G[place_G], 0)

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
                f"{path} contains no document frequencies; expected a file written by DocumentFrequencies.save"
            )
        if not content["token_ids"] and content["tokenizer"] != VERSION:
            raise UsageError(
                f"{path} was counted with tokenizer '{content['tokenizer']}', but this version uses '{VERSION}'; "
                "compute and save it again"
            )
        hash_G, frequency_G = np.array(content["ngrams"], np.uint64), np.array(content["frequencies"], np.int64)
        return cls(hash_G, frequency_G, content["documents"], content["name"], content["end"], content["token_ids"])
