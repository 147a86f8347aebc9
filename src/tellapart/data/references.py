"""References of an item: cleaned, joined to descriptions, or as BLIP learns them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tellapart.data.records import MarkedText, caption_texts
from tellapart.types import Item
from tellapart.utils.messages import clean_text


def clean_captions(captions: Any, where: str) -> tuple[str, ...]:
    """The captions in a value (`caption_texts`), each on one line without blanks around it.

    Empty ones and those that VizWiz leaves out are dropped. Raises `UsageError` that begins with ``where``.
    """
    found = caption_texts(captions, where)
    if error := next((text.error for text in found if isinstance(text, MarkedText) and text.error), None):
        raise error
    joined = (" ".join(clean_text(text).split()) for text in found if not (isinstance(text, MarkedText) and text.flag))
    return tuple(caption for caption in joined if caption)


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
