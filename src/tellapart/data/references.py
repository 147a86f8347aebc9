"""References of an item: cleaned, joined to descriptions, or as BLIP learns them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellapart.data.dropped import EMPTY, drop
from tellapart.data.records import MarkedText, caption_texts, clean_line, with_flags
from tellapart.types import Item


def clean_captions(captions: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The captions in a value (`caption_texts`), each on one line without blanks around it.

    Empty ones are dropped and counted (`tellapart.data.dropped`), and so are those that VizWiz leaves out by a flag in
    ``record``. Raises `UsageError` that begins with ``where``.
    """
    found = with_flags(caption_texts(captions, where), record or {}, where)
    if error := next((text.error for text in found if isinstance(text, MarkedText) and text.error), None):
        raise error
    texts = []
    for text in found:
        line = clean_line(text)
        if reason := getattr(text, "flag", "") or ("" if line else EMPTY):
            drop(reason, where)
        else:
            texts.append(line)
    return tuple(texts)


_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ARTICLES = frozenset(("a", "an", "the"))
_END = ".!?,; "


_BLIP_MARKS = str.maketrans(dict.fromkeys('.!"()*#:;~', " "))
BLIP_WORDS = 30


def blip_clean(text: str) -> str:
    """Returns a reference as BLIP learns it (`pre_caption` of its program): lower case, without ``.!"()*#:;~``, at most
    30 words."""
    return " ".join(text.lower().translate(_BLIP_MARKS).split()[:BLIP_WORDS])


def blip_cleaned(item: Item) -> Item:
    """Returns an item with its references cleaned by `blip_clean`; those of which nothing is left are dropped."""
    return replace(item, references=tuple(filter(None, map(blip_clean, item.references))))


def described(item: Item, prompt: str) -> Item:
    """Returns an item whose references are descriptions that begin with ``prompt``; its id ends in ``#description``.

    Of a picture with n references that differ there are n descriptions, each of which begins with another reference.
    A picture without references keeps none.
    """
    return replace(item, id=f"{item.id}#description", references=descriptions(item.references, prompt))


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
