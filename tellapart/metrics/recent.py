"""Tokenise once: the last few results of a function of captions and references, for metrics that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.ngrams import Counts, GramTable
from tellapart.metrics.tokenizer import ptb_tokenize

T = TypeVar("T")
_KEPT = 8  # systems and pairs of them that an evaluation goes through, metric by metric
BLOCK = 8192  # pictures whose references are counted at a time; fewer are counted once and kept


def recent(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the last results by the arguments' content. Comparing lists of the same strings is quick.

    Of more texts than `BLOCK` only the last two results are kept, for these are large.
    """
    kept: list[tuple[tuple[Any, ...], T]] = []

    def remembered(*arguments: Any) -> T:
        for place, (known, result) in enumerate(kept):
            if known == arguments:
                kept.append(kept.pop(place))
                return result
        result = function(*arguments)
        # Copies, for a caller may change its lists later.
        kept.append((tuple(_copied(argument) for argument in arguments), result))
        del kept[: -_KEPT if len(arguments[0]) <= BLOCK else -2]
        return result

    remembered.__doc__ = function.__doc__
    return remembered


def _copied(argument: Any) -> Any:
    """A list, and the lists in it, apart from the caller's; what these hold are texts."""
    if not isinstance(argument, list):
        return argument
    return [inner.copy() if isinstance(inner, list) else inner for inner in argument]


class Tokenized(NamedTuple):
    """Captions, and the references of each, as `ptb_tokenize` writes them."""

    captions: list[str]
    references: list[list[str]]


def tokenized(captions: Sequence[str], references: Sequence[Sequence[str]]) -> Tokenized:
    """Both sides tokenised as the COCO tools do: all captions as one text, all references as another."""
    check(captions, references)
    return Tokenized(_tokenized_captions(captions), _tokenized_references(references))


@recent
def _tokenized_captions(captions: Sequence[str]) -> list[str]:
    return ptb_tokenize(captions)


@recent
def _tokenized_references(references: Sequence[Sequence[str]]) -> list[list[str]]:
    flat = iter(ptb_tokenize([text for reference_texts in references for text in reference_texts]))
    return [[next(flat) for _ in reference_texts] for reference_texts in references]


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


def check(captions: Sequence[Any], references: Sequence[Sequence[Any]] | None) -> None:
    """Raises `UsageError` where the two do not fit: a caption without references cannot be scored."""
    if references is None or len(captions) != len(references):
        count = "no" if references is None else len(references)
        raise UsageError(f"{len(captions)} captions and {count} lists of references; give one list for each caption")
    without = [
        number
        for number, reference_texts in enumerate(references)
        if isinstance(reference_texts, str) or not len(reference_texts)
    ]
    if without:
        raise UsageError(
            f"caption {without[0]} (of {len(without)}) has no list of references; give each at least one, in a list"
        )
