"""Creates descriptions that join a picture's references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tellapart.language.english_words import WORD
from tellapart.types import Item

_ARTICLES = frozenset(("a", "an", "the"))
_END = ".!?,; "


def described(item: Item, prompt: str) -> Item:
    """Replaces an item's references with descriptions that begin with ``prompt``. Appends ``#description`` to the id.

    A picture with n distinct references gets n descriptions, each beginning with a different reference. A picture
    without references gets no descriptions.
    """
    return replace(item, id=f"{item.id}#description", references=descriptions(item.references, prompt))


def descriptions(references: Sequence[str], prompt: str) -> tuple[str, ...]:
    """Returns one text per reference: the prompt, that reference, and then all other references.

    Drops references whose words, apart from articles, all occur in another reference.
    """
    sentences = [text for text in (reference.strip().rstrip(_END) for reference in distinct(references)) if text]
    turns = (sentences[start:] + sentences[:start] for start in range(len(sentences)))
    return tuple(f"{prompt} {'. '.join([_lower_first(first), *others])}." for first, *others in turns)


def distinct(references: Sequence[str]) -> list[str]:
    """Drops references whose words all occur in another reference.

    Keeps only the first of several references with the same words.
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
