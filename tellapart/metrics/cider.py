"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr; with document frequencies from where you say.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10; `CiderD`
keeps references and document frequencies for a reward that is asked again and again. Without document frequencies
of its own, one picture alone scores 0, and so does a word that every picture's references use.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.ngrams import ORDERS, WORDS, Counts, GramTable, sorted_unique
from tellapart.metrics.recent import check, recent, tokenized
from tellapart.metrics.tokenizer import VERSION, ptb_tokenize

References = Sequence[Sequence[str]]
Sentence = Sequence[Hashable]

CIDER_D_SIGNATURE = f"cider-d,coco|sigma:6,clipped,x10|idf:references|end:out|tok:{VERSION}"
CIDER_SIGNATURE = f"cider-plain|unclipped,no-length-penalty,unstemmed,x10|idf:references|end:out|tok:{VERSION}"
SIGMA = 6.0
END = "<eos>"  # the end token in texts; the tokenizer writes no such word
_FORMAT = "tellapart document frequencies 1"


def cider_d(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """CIDEr-D (Vedantam et al. 2015, eq. 5 with clipping and σ = 6), as the COCO tools: its mean, and each caption's.

    Document frequencies come from the references given: scores of two sets of pictures cannot be compared.
    """
    return _corpus(captions, references, False)


def cider_plain(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Plain CIDEr (Vedantam et al. 2015, eq. 1-4) × 10: neither clipping nor length penalty; words are not stemmed."""
    return _corpus(captions, references, True)


def _corpus(captions: Sequence[str], references: References, plain: bool) -> tuple[float, np.ndarray]:
    said, held = tokenized(captions, references)
    score_N = _scorer(held, plain).score([caption.split() for caption in said], np.arange(len(held)))
    return (float(score_N.mean()) if len(score_N) else float("nan")), score_N


@recent
def _scorer(held: list[list[str]], plain: bool) -> _Vectors:
    table = GramTable()
    counts = table.add([text.split() for texts in held for text in texts])
    image_R = np.repeat(np.arange(len(held)), [len(texts) for texts in held])
    return _Vectors(table, counts, image_R, _documents(table, counts, image_R), len(held), plain)


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
            raise UsageError("the end token is part of the string, but which it is is not said; give end_token=ID")
        if isinstance(idf, str) and idf not in ("references", "batch"):
            raise UsageError(f"idf is '{idf}'; expected 'references', 'batch', references, or DocumentFrequencies")
        self.pictures = len(references)
        self._held = [self._rows(texts, told=True) for texts in references] if self.ids else self._texts(references)
        self._image_R = np.repeat(np.arange(len(references)), [len(rows) for rows in self._held])
        flat = [row for rows in self._held for row in rows]
        if isinstance(idf, str):
            table = GramTable()
            counts = table.add(flat)
            frequencies, self.source, documents = _documents(table, counts, self._image_R), idf, len(references)
        else:
            frozen = idf if isinstance(idf, DocumentFrequencies) else self.frequencies(idf)
            if frozen.end != end or frozen.ids != self.ids:
                raise UsageError(
                    f"document frequencies are of {_kind(frozen.ids, frozen.end)}, references of "
                    f"{_kind(self.ids, end)}; make both the same"
                )
            table = frozen.table()
            counts = table.add(flat)
            frequencies = np.concatenate([frozen.frequency_G, np.zeros(table.size - len(frozen.frequency_G))])
            self.source, documents = frozen.name, frozen.documents
        self._vectors = _Vectors(table, counts, self._image_R, frequencies, documents, plain)

    def frequencies(self, references: Sequence[Sequence[Any]], name: str = "training") -> DocumentFrequencies:
        """Document frequencies of other references, in the form that this object's have."""
        held = [self._rows(texts, told=True) for texts in references] if self.ids else self._texts(references)
        return DocumentFrequencies.of(held, name, end=self.end, ids=self.ids)

    @property
    def signature(self) -> str:
        """What a number of this object is, to compare it with another."""
        variant = "cider-plain|unclipped,no-length-penalty,unstemmed,x10" if self.plain else "cider-d|sigma:6,clipped"
        idf = f"{self.source},n={self._vectors.documents}" if self.source != "batch" else "batch"
        cut = "token-ids" if self.ids else VERSION
        return f"{variant}|idf:{idf}|end:{'in' if self.end else 'out'}|tok:{cut}|tellapart:{__version__}"

    def __call__(self, captions: Sequence[Any], pictures: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """The scores of captions, 0 to 10: texts, or rows of token ids (lists, or a 2-D array cut at the end token).

        ``pictures`` says for each caption which picture's references it is held against (its number); without it,
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

    def _batch(self, image_N: np.ndarray) -> _Vectors:
        """The same references under the document frequencies of this batch's pictures."""
        shown = np.zeros(self.pictures, dtype=bool)
        shown[image_N] = True
        whole = self._vectors
        return _Vectors(
            whole.table,
            whole.counts,
            self._image_R,
            _documents(whole.table, whole.counts, self._image_R, shown[self._image_R]),
            int(shown.sum()),
            self.plain,
        )

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

    def _rows(self, rows: Any, *, told: bool = False) -> list[Any]:
        lists: list[list[int]] = rows.tolist() if hasattr(rows, "tolist") else [_listed(row) for row in rows]
        if self.end_token is None:
            return list(lists)
        found = []
        for row in lists:
            place = row.index(self.end_token) if self.end_token in row else None
            ended = place is not None or told
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
        cls, held: Sequence[Sequence[Sentence]], name: str, *, end: bool = False, ids: bool = False
    ) -> DocumentFrequencies:
        """Count references that are already cut into words."""
        table = GramTable()
        counts = table.add([row for rows in held for row in rows])
        image_R = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        grams = []
        for keys, numbers in zip(table.keys, table.ids, strict=True):
            pair_G2 = np.zeros((len(keys), 2), np.int64)
            pair_G2[numbers] = np.stack([keys // WORDS, keys % WORDS], axis=1)
            grams.append(pair_G2)
        return cls(list(table.words), grams, _documents(table, counts, image_R), len(held), name, end, ids)

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


def _documents(table: GramTable, counts: Counts, image_R: np.ndarray, shown_R: np.ndarray | None = None) -> np.ndarray:
    """For each n-gram of the table the number of pictures whose references have it (of the references shown)."""
    kept_E = slice(None) if shown_R is None else shown_R[counts.sentence_E]
    key, _, _ = sorted_unique(np.sort(image_R[counts.sentence_E[kept_E]] * table.size + counts.gram_E[kept_E]))
    return np.bincount(key % max(table.size, 1), minlength=table.size).astype(float)


class _Vectors:
    """References as tf-idf vectors, sorted by picture and n-gram, for captions to be matched against."""

    def __init__(
        self,
        table: GramTable,
        counts: Counts,
        image_R: np.ndarray,
        frequency_G: np.ndarray,
        documents: int,
        plain: bool,
    ) -> None:
        self.table, self.counts, self.documents, self.plain = table, counts, documents, plain
        self.rare = float(np.log(max(documents, 1)))  # the weight of an n-gram that no document has
        self.idf_G = self.rare - np.log(np.maximum(1.0, frequency_G))
        self.references = np.bincount(image_R)
        weight_E = counts.count_E * self.idf_G[counts.gram_E]
        unit_E = weight_E / _norms(counts, weight_E)
        key_E = image_R[counts.sentence_E] * table.size + counts.gram_E
        sorted_E = np.argsort(key_E, kind="stable")
        self.key_K, self.start_K, self.many_K = sorted_unique(key_E[sorted_E])
        self.weight_E, self.unit_E = weight_E[sorted_E], unit_E[sorted_E]
        self.length_E = counts.length_M[counts.sentence_E[sorted_E]]

    def score(self, sentences: Sequence[Sentence], image_N: np.ndarray) -> np.ndarray:
        """Each sentence against the references of its picture, mean over references and n-gram lengths, × 10."""
        return self.scores(self.table.look_up(sentences), image_N)

    def scores(self, said: Counts, image_N: np.ndarray) -> np.ndarray:
        """`score` of sentences that the table has counted."""
        if not len(image_N):
            return np.zeros(0)
        size = self.table.size
        known_C = np.flatnonzero(said.gram_E < size)
        idf_E = np.full(len(said.gram_E), self.rare)
        idf_E[known_C] = self.idf_G[said.gram_E[known_C]]
        weight_E = said.count_E * idf_E
        asked_C = image_N[said.sentence_E[known_C]] * size + said.gram_E[known_C]
        place_C = np.searchsorted(self.key_K, asked_C)
        place_C[place_C == len(self.key_K)] = 0
        # Without any n-gram in the references there is nothing to hit.
        hit_C = self.key_K[place_C] == asked_C if len(self.key_K) else np.zeros(len(asked_C), dtype=bool)
        total_N = self._agreement(said, weight_E, known_C[hit_C], place_C[hit_C])
        return 10.0 * total_N / ORDERS / self.references[image_N]

    def _agreement(self, said: Counts, weight_E: np.ndarray, hit_C: np.ndarray, place_C: np.ndarray) -> np.ndarray:
        """Sum of products of unit vectors: one row for each pair of an n-gram said and a reference that has it."""
        many_C = self.many_K[place_C]
        start_C = self.start_K[place_C] - (np.cumsum(many_C) - many_C)
        told_P = np.arange(int(many_C.sum())) + np.repeat(start_C, many_C)
        said_P = np.repeat(hit_C, many_C)
        weight_P = weight_E[said_P]
        if not self.plain:
            weight_P = np.minimum(weight_P, self.weight_E[told_P])
            delta_P = said.length_M[said.sentence_E[said_P]] - self.length_E[told_P]
            weight_P = weight_P * _penalty(delta_P)
        agreed_P = weight_P * self.unit_E[told_P] / _norms(said, weight_E)[said_P]
        return np.bincount(said.sentence_E[said_P], agreed_P, minlength=len(said.length_M))


def _norms(counts: Counts, weight_E: np.ndarray) -> np.ndarray:
    """For each entry the length of its vector; 1 for a null vector, which the tool does not divide by."""
    cell_E = counts.sentence_E * ORDERS + counts.order_E
    norm = np.sqrt(np.bincount(cell_E, weight_E**2, minlength=len(counts.length_M) * ORDERS))
    norm[norm == 0] = 1.0
    return norm[cell_E]


def _penalty(delta_P: np.ndarray) -> np.ndarray:
    """The Gaussian of the difference in length, of which there are few distinct ones."""
    if not len(delta_P):
        return np.zeros(0)
    low, high = int(delta_P.min()), int(delta_P.max())
    return np.exp(-(np.arange(low, high + 1) ** 2) / (2 * SIGMA**2))[delta_P - low]
