"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr; with document frequencies from where you say.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10; `CiderD`
keeps references and document frequencies for a reward that is asked again and again. Without document frequencies
of its own, one picture alone scores 0, and so does a word that every picture's references use.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.ngrams import ORDERS, WORDS, CountedBlock, Counts, GramTable, Hashed, counted, sorted_unique
from tellapart.metrics.ptb import VERSION, check, ptb_tokenize, recent, tokenized
from tellapart.metrics.registry import metric
from tellapart.metrics.results import CLOSE

# N-grams of references as tf-idf vectors, and how well counted captions agree with them: what CIDEr is made of.
#
# Suffixes as in `ngrams`; besides, R references, I pictures, N captions, C caption entries that the table knows,
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
        self._whole: Vectors | None = None

    def score(self, caption_tokens: list[str]) -> np.ndarray:
        """The score of each picture's caption."""
        parts = []
        for block in self._references.blocks():
            sentences = [text.split() for text in caption_tokens[block.pictures]]
            parts.append(self._vectors(block).score(sentences, np.arange(len(sentences))))
        return np.concatenate(parts)

    def _vectors(self, block: CountedBlock) -> Vectors:
        if self._whole is not None:
            return self._whole
        pictures = self._references.pictures
        made = Vectors(self._references.table, block.counts, block.image_R, self._idf_G, pictures, self._plain)
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
        self._vectors = Vectors(table, counts, self._image_R, idf_G, documents, plain)
        self._vectors.quicken()

    def frequencies(self, references: Sequence[Sequence[Any]], name: str = "training") -> DocumentFrequencies:
        """Document frequencies of other references, in the form that this object's have."""
        reference_texts = (
            [self._rows(texts, is_reference=True) for texts in references] if self.ids else self._texts(references)
        )
        return DocumentFrequencies.of(reference_texts, name, end=self.end, ids=self.ids)

    @property
    def signature(self) -> str:
        """What a number of this object is, to compare it with another."""
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

    def _batch(self, image_N: np.ndarray) -> Vectors:
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
