"""CIDEr-D, which the COCO tools print as CIDEr, and plain CIDEr, with configurable document frequencies.

`cider_d` and `cider_plain` are pure functions ``(captions, references) -> (corpus, per_caption_N)``, 0 to 10. `CiderD`
stores references and document frequencies for use as a reward. An n-gram that occurs in every picture's references
contributes 0, so the score for a single picture is always 0.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, repeat, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.metrics.inputs import References, check, with_mean
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, ptb_tokenize, tokenized
from tellapart.metrics.registry import metric

ORDERS = 4
SIGMA = 6.0
END = "<eos>"  # represents the end token in text; the tokenizer never outputs this word
CIDER_D_SIGNATURE = f"cider-d,coco|sigma:6,clipped,x10|idf:references|end:out|tok:{VERSION}"
CIDER_SIGNATURE = f"cider-plain|unclipped,no-length-penalty,unstemmed,x10|idf:references|end:out|tok:{VERSION}"
_FORMAT = "tellapart document frequencies 3"
# Each n-gram's weight, with the norm of the weights of all n-grams of its length; and the number of words.
Vector = tuple[dict[str, tuple[float, float]], int]


def ngrams(text: str) -> Iterator[Counter[str]]:
    """Yields the counts of the n-grams of a tokenized text, for n = 1 to 4. Spaces separate the tokens."""
    words = text.split()
    for order in range(1, ORDERS + 1):
        yield Counter(map(" ".join, zip(*(words[start:] for start in range(order)), strict=False)))


def length_penalty(difference: Any) -> Any:
    """Computes the Gaussian length penalty for differences in length."""
    return np.exp(-(difference**2) / (2 * SIGMA**2))


@dataclass(frozen=True)
class DocumentFrequencies:
    """Frozen document frequencies: for each n-gram, the number of pictures whose references contain it.

    Leaves out n-grams that only one picture's references contain, because unknown n-grams are weighted like them.
    """

    frequency: Mapping[str, int]
    documents: int
    name: str
    end: bool
    ids: bool

    @classmethod
    def of(cls, references: References, name: str, *, end: bool = False, ids: bool = False) -> DocumentFrequencies:
        """Counts the n-grams in references that are already tokenized."""
        frequency: Counter[str] = Counter()
        for texts in references:
            frequency.update({gram for text in texts for counts in ngrams(text) for gram in counts})
        return cls({gram: n for gram, n in frequency.items() if n > 1}, len(references), name, end, ids)

    def vector(self, text: str) -> Vector:
        """Computes the tf-idf weights of a tokenized text's n-grams."""
        vector: dict[str, tuple[float, float]] = {}
        known, unknown = self._idf, math.log(max(self.documents, 1))
        for counts in ngrams(text):
            weights = [n * known.get(gram, unknown) for gram, n in counts.items()]
            norm = math.hypot(*weights) or 1.0
            vector.update(zip(counts, zip(weights, repeat(norm)), strict=True))
        return vector, len(text.split())

    @cached_property
    def _idf(self) -> dict[str, float]:
        total = math.log(max(self.documents, 1))
        return {gram: total - math.log(count) for gram, count in self.frequency.items()}

    def save(self, path: str | Path) -> None:
        """Writes the frequencies to a file, as one line of JSON."""
        content = {
            "format": _FORMAT,
            "name": self.name,
            "documents": self.documents,
            "end": self.end,
            "token_ids": self.ids,
            "tokenizer": None if self.ids else VERSION,
            "frequencies": self.frequency,
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
        return cls(*(content[key] for key in ("frequencies", "documents", "name", "end", "token_ids")))


def _scores(
    captions: Sequence[str],
    pictures: Iterable[int],
    references: References,
    frequencies: DocumentFrequencies,
    plain: bool = False,
) -> np.ndarray:
    """Computes each tokenized caption's score, 0 to 10. ``pictures``: the index of each caption's references."""
    scores = []
    for picture, own in groupby(zip(pictures, captions, strict=True), itemgetter(0)):
        others = [frequencies.vector(text) for text in references[picture]]
        for _, caption in own:
            vector = frequencies.vector(caption)
            total = sum([_similarity(vector, other, plain) for other in others])
            scores.append(10 * total / ORDERS / len(others))
    return np.array(scores, dtype=float)


def _similarity(caption: Vector, reference: Vector, plain: bool) -> float:
    """Computes the sum, over n = 1 to 4, of the cosines of the n-grams' weights. Clips the caption's weights and
    multiplies by the length penalty, unless ``plain`` is set.
    """
    (own, length), (others, other_length) = caption, reference
    common = [(*pair, *others[gram]) for gram, pair in own.items() if gram in others]
    if plain:
        return sum([a * b / (norm_a * norm_b) for a, norm_a, b, norm_b in common])
    clipped = sum([min(a, b) * b / (norm_a * norm_b) for a, norm_a, b, norm_b in common])
    return clipped * float(length_penalty(length - other_length))


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
    caption_tokens: Sequence[str], reference_texts: References, plain: bool = False
) -> tuple[float, np.ndarray]:
    """Computes `cider_d` (or `cider_plain`) from tokenized texts, in which spaces separate the tokens."""
    frequencies = DocumentFrequencies.of(reference_texts, "references")
    return with_mean(_scores(caption_tokens, range(len(caption_tokens)), reference_texts, frequencies, plain))


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
            self._frequencies = self._count(self._references, idf)
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
        return self._count(self._cut_references(references), name)

    def _count(self, references: References, name: str) -> DocumentFrequencies:
        return DocumentFrequencies.of(references, name, end=self.end, ids=self.ids)

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
        frequencies = self._frequencies
        if frequencies is None:
            frequencies = self._count([self._references[image] for image in np.unique(image_N)], "batch")
        return _scores(self._cut(captions), image_N, self._references, frequencies)

    def _cut_references(self, references: Sequence[Sequence[Any]]) -> list[list[str]]:
        flat = iter(self._cut([text for texts in references for text in texts], is_reference=True))
        return [[next(flat) for _ in texts] for texts in references]

    def _cut(self, texts: Sequence[Any], *, is_reference: bool = False) -> list[str]:
        """Tokenizes texts, or cuts rows of token ids off at the end token and joins them with spaces."""
        if not self.ids:
            return [f"{text} {END}" if self.end else text for text in ptb_tokenize(texts)]
        cut = []
        for row in texts:
            ids = row.tolist() if hasattr(row, "tolist") else list(row)
            if self.end_token is not None:
                ended = is_reference or self.end_token in ids
                ids = [*takewhile(self.end_token.__ne__, ids), *[self.end_token] * (self.end and ended)]
            cut.append(" ".join(map(str, ids)))
        return cut


def _kind(ids: bool, end: bool) -> str:
    return f"{'token ids' if ids else 'texts'} {'with' if end else 'without'} the end token"
