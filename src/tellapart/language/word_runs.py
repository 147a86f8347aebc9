"""The keys under which a caption's content words are counted, and the runs of keys in which phrases are found."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from tellapart.language.inflection import singular
from tellapart.language.words import Word, content_words

LONGEST_PHRASE = 4  # maximum number of content words in a phrase


def word_key(caption: str, word: Word) -> str:
    """Returns the key under which a content word is counted: the word in lower case, nouns in the singular. The
    singular depends only on the spelling.
    """
    text = caption[word.start : word.end].lower()
    return singular(text) if word.kind in ("head", "modifier") else text


def word_runs(caption: str) -> list[list[tuple[str, Word]]]:
    """Returns a caption's content words with their keys, split into runs at stops, commas and relations."""
    runs: list[list[tuple[str, Word]]] = [[]]
    end = 0
    for word in content_words(caption):
        if word.kind == "relation" or re.search(r"[^\w\s'’-]", caption[end : word.start]):
            runs.append([])
        end = word.end
        if word.kind != "relation":
            runs[-1].append((word_key(caption, word), word))
    return [run for run in runs if run]


def places_in_phrases(keys: Sequence[str], phrases: Set[tuple[str, ...]]) -> set[int]:
    """Returns the indices of the words in a run that belong to one of ``phrases``."""
    spans = ((start, size) for size in range(2, LONGEST_PHRASE + 1) for start in range(len(keys) - size + 1))
    return {
        place
        for start, size in spans
        if tuple(keys[start : start + size]) in phrases
        for place in range(start, start + size)
    }
