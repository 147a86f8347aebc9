"""Finds the ends of phrases, where a caption can be cut."""

from __future__ import annotations

from tellapart.language.english_words import (
    COLOURS,
    CONJUNCTIONS,
    NUMBERS,
    PREPOSITIONS,
    SOFT_DETERMINERS,
    SOFT_PREPOSITIONS,
    TAKE_OBJECTS,
    TOKEN,
    word_set,
)
from tellapart.language.words import content_words

_CUT_BEFORE = (SOFT_PREPOSITIONS | PREPOSITIONS | CONJUNCTIONS | word_set("or where")) - {"of"}


def phrase_ends(sentence: str) -> list[int]:
    """Returns the character positions where a sentence may be cut, in ascending order. The last position is the
    sentence's length.

    A sentence may be cut before a preposition, a conjunction, a comma or a participle with an object if the preceding
    word is a noun, or a verb that needs no object. Supports only English; recognizes verbs in the same way as `soften`.
    """
    words = content_words(sentence)
    kind_at = {word.end: word.kind for word in words}
    verbs = {word.start for word in words if word.kind == "verb"}
    tokens = list(TOKEN.finditer(sentence))
    ends = []
    for place in range(1, len(tokens)):
        before, token = tokens[place - 1], tokens[place]
        lower, last = token[0].lower(), before[0].lower()
        after = tokens[place + 1][0].lower() if place + 1 < len(tokens) else ""
        has_object = token.start() in verbs and after in SOFT_DETERMINERS | NUMBERS
        if not (lower in _CUT_BEFORE or lower[0] in ",;:(–—" or has_object):
            continue
        kind = kind_at.get(before.end())
        paired = last in COLOURS and after in COLOURS  # "a black and white dog"
        if (kind == "head" and not paired) or (kind == "verb" and last not in TAKE_OBJECTS):
            ends.append(before.end())
    return [*ends, len(sentence)]
