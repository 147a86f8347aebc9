"""Tokenise once: the last few results of a function of captions and references, for metrics that share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.ngrams import Counts, GramTable
from tellapart.metrics.tokenizer import ptb_tokenize

T = TypeVar("T")
_KEPT = 8  # systems and pairs of them that an evaluation goes through, metric by metric


def recent(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the last results by the arguments' content. Comparing lists of the same strings is quick."""
    kept: list[tuple[tuple[Any, ...], T]] = []

    def remembered(*arguments: Any) -> T:
        for place, (known, result) in enumerate(kept):
            if known == arguments:
                kept.append(kept.pop(place))
                return result
        result = function(*arguments)
        # Copies, for a caller may change its lists later.
        kept.append((tuple(_copied(argument) for argument in arguments), result))
        del kept[:-_KEPT]
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


@recent
def tokenized(captions: Sequence[str], references: Sequence[Sequence[str]]) -> Tokenized:
    """Both sides tokenised as the COCO tools do: all captions as one text, all references as another."""
    check(captions, references)
    flat = iter(ptb_tokenize([text for reference_texts in references for text in reference_texts]))
    return Tokenized(ptb_tokenize(captions), [[next(flat) for _ in reference_texts] for reference_texts in references])


class Counted(NamedTuple):
    """All pictures' references as counted n-grams, a picture's in a group, and the picture of each reference."""

    table: GramTable
    counts: Counts
    image_R: np.ndarray


@recent
def counted(references: list[list[str]]) -> Counted:
    """The n-grams of references that are already tokenised. The table is shared: look up in it, do not add."""
    image_R = np.repeat(np.arange(len(references)), [len(texts) for texts in references])
    table = GramTable()
    return Counted(table, table.add_texts([text for texts in references for text in texts], image_R), image_R)


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
