"""Prepares an item's references: cleans them, joins them to descriptions, or formats them for BLIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellapart.data.dropped import EMPTY, drop, has_text
from tellapart.data.records import MarkedText, caption_texts, clean_line, with_flags
from tellapart.language.english import WORD
from tellapart.types import Item


def clean_captions(captions: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns the captions in a value (`caption_texts`), each on one line and stripped.

    Drops empty captions and those that a VizWiz flag in ``record`` excludes; counts them in `tellapart.data.dropped`.
    Raises `UsageError` whose message begins with ``where``.
    """
    found = with_flags(caption_texts(captions, where), record or {}, where)
    if error := next((text.error for text in found if isinstance(text, MarkedText) and text.error), None):
        raise error
    texts = []
    for text in found:
        line = clean_line(text)
        if reason := getattr(text, "flag", "") or ("" if has_text(line) else EMPTY):
            drop(reason, where)
        else:
            texts.append(line)
    return tuple(texts)


_ARTICLES = frozenset(("a", "an", "the"))
_END = ".!?,; "


_BLIP_MARKS = str.maketrans(dict.fromkeys('.!"()*#:;~', " "))
BLIP_WORDS = 30


def blip_clean(text: str) -> str:
    """Formats a reference for BLIP (``pre_caption`` in its code): lower case, without ``.!"()*#:;~``, at most 30
    words."""
    return " ".join(text.lower().translate(_BLIP_MARKS).split()[:BLIP_WORDS])


def blip_cleaned(item: Item) -> Item:
    """Returns an item with its references cleaned by `blip_clean`; drops those that become empty."""
    return replace(item, references=tuple(filter(None, map(blip_clean, item.references))))


def described(item: Item, prompt: str) -> Item:
    """Replaces the item's references with descriptions that begin with ``prompt``; appends ``#description`` to its id.

    A picture with n distinct references gets n descriptions, each beginning with a different reference. A picture
    without references gets none.
    """
    return replace(item, id=f"{item.id}#description", references=descriptions(item.references, prompt))


def descriptions(references: Sequence[str], prompt: str) -> tuple[str, ...]:
    """Returns one text per reference: the prompt, that reference, then the others. Returns [] without references.

    Drops references whose words, apart from articles, all occur in another one.
    """
    sentences = [text for text in (reference.strip().rstrip(_END) for reference in distinct(references)) if text]
    turns = (sentences[start:] + sentences[:start] for start in range(len(sentences)))
    return tuple(f"{prompt} {'. '.join([_lower_first(first), *others])}." for first, *others in turns)


def distinct(references: Sequence[str]) -> list[str]:
    """Returns the references whose words are not all contained in another one, and only the first of several with equal
    words.
    """
    words = [frozenset(WORD.findall(text.lower())) - _ARTICLES for text in references]
    return [
        text
        for place, text in enumerate(references)
        if words[place]
        and not any(
            words[place] < other or (words[place] == other and before < place) for before, other in enumerate(words)
        )
    ]


def _lower_first(sentence: str) -> str:
    """Lower-cases the first letter: "A dog" becomes "a dog", "USA" is unchanged."""
    capital = sentence[:1].isupper() and not sentence[1:2].isupper()
    return sentence[0].lower() + sentence[1:] if capital else sentence
