"""Computes what fraction of samples contain a caption's content words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tellapart.language.words import FindWords, content_words


def word_shares(captions: Sequence[str], samples: Sequence[str], find: FindWords = content_words) -> list[float]:
    """For each caption, computes the fraction of samples that contain a content word, averaged over its content words.

    The result is in [0, 1], and 0 for a caption without content words. Repeated words count once per caption.
    """
    words = {text: distinct_words(text, find) for text in {*samples, *captions}}
    said_by = Counter(word for text in samples for word in words[text])
    return [
        sum(said_by[word] for word in words[caption]) / (len(samples) * max(1, len(words[caption])))
        for caption in captions
    ]


def distinct_words(text: str, find: FindWords) -> set[str]:
    """Returns the set of lowercase content words in a caption."""
    lower = text.lower()
    return {lower[word.start : word.end] for word in find(lower)}
