"""``describe=PROMPT`` of a data set: the references of a picture, joined to a description of it.

Several people who caption one picture mention different things. Together they describe it, and a captioner that learns
the joined text behind a prompt, beside plain references without one, can be asked for either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

from tellapart.data.dataset import OnDemand, select_items
from tellapart.types import Item

_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ARTICLES = frozenset(("a", "an", "the"))
_END = ".!?,; "


class Described(OnDemand):
    """Items whose references are descriptions that begin with ``prompt``; their ids end in ``#description``.

    Of a picture with n references that differ there are n descriptions, each of which begins with another reference.
    Pictures without references keep none.
    """

    def __init__(self, items: Sequence[Item], prompt: str) -> None:
        self._items, self._prompt = items, prompt

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Described: ...
    def __getitem__(self, index: int | slice) -> Item | Described:
        if isinstance(index, slice):
            return self.subset(range(len(self))[index])
        item = self._items[index]
        texts = descriptions(item.references, self._prompt)
        return replace(item, id=f"{item.id}#description", references=texts)

    def __len__(self) -> int:
        return len(self._items)

    def subset(self, indices: Iterable[int]) -> Described:
        """The items at these places, in this order, again on demand."""
        return Described(select_items(self._items, indices), self._prompt)


def descriptions(references: Sequence[str], prompt: str) -> tuple[str, ...]:
    """The references as sentences of one text behind the prompt, once from each on; none where there are none.

    One that says nothing more than another, articles aside, is left out.
    """
    sentences = [text for text in (reference.strip().rstrip(_END) for reference in distinct(references)) if text]
    turns = (sentences[start:] + sentences[:start] for start in range(len(sentences)))
    return tuple(f"{prompt} {'. '.join([_lower_first(first), *others])}." for first, *others in turns)


def distinct(references: Sequence[str]) -> list[str]:
    """Those whose words do not all stand in another one; of those with the same words the first."""
    words = [frozenset(_WORD.findall(text.lower())) - _ARTICLES for text in references]
    return [
        text
        for place, text in enumerate(references)
        if words[place]
        and not any(
            words[place] < other or (words[place] == other and before < place) for before, other in enumerate(words)
        )
    ]


def _lower_first(sentence: str) -> str:
    """ "A dog" as "a dog", "USA" as it is."""
    capital = sentence[:1].isupper() and not sentence[1:2].isupper()
    return sentence[0].lower() + sentence[1:] if capital else sentence
