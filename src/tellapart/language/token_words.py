"""Finds which content word of a caption each token belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tellapart.language.token_spans import token_spans
from tellapart.language.words import FindWords, Word
from tellapart.types import Rollout

if TYPE_CHECKING:
    import torch

NO_WORD = -1


def words_of_tokens(rollout: Rollout, tokenizer: Any, find: FindWords) -> tuple[list[list[Word]], torch.Tensor]:
    """Returns each caption's content words, and word_RT, the index of the word that each token belongs to, or
    `NO_WORD`.

    `word_of_span` defines which word a token belongs to.
    """
    import torch

    word_RT = torch.full(rollout.tokens_RT.shape, NO_WORD, dtype=torch.long)
    rows = rollout.rows()
    unique = {tuple(row): text for row, text in zip(rows, rollout.texts, strict=True)}
    spans = dict(zip(unique, token_spans(list(unique), list(unique.values()), tokenizer), strict=True))
    found = {text: find(text) for text in dict.fromkeys(rollout.texts)}
    for r, (row, text) in enumerate(zip(rows, rollout.texts, strict=True)):
        for t, span in enumerate(spans[tuple(row)]):
            word_RT[r, t] = word_of_span(span, found[text])
    return [found[text] for text in rollout.texts], word_RT


def word_of_span(span: tuple[int, int], words: Sequence[Word]) -> int:
    """Returns the index of the word that a token with this span of characters belongs to, or `NO_WORD`.

    This is the first word that overlaps the span or, if the span is empty, the word that contains its position.
    """
    start, end = span
    for number, word in enumerate(words):
        overlaps = start < word.end and word.start < end
        if overlaps or (start == end and word.start <= start < word.end):
            return number
    return NO_WORD
