"""Splits a caption into sentences of tagged words.

HanTa (the extra ``words``) provides lemmas and CLAWS 5 tags: NN1 is a noun, AJ0 an adjective, VVG a participle, PRP
a preposition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tellapart.language.english import WORD_PATTERN, tag_words

_SENTENCE = re.compile(r"[^.!?;\n]+")
_BREAKS = ',:()"“”–—'
_DECIMAL = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A lower-cased word with its lemma, tag, and position in the caption, in characters.

    ``after_break``: whether a comma, a colon or a bracket precedes it.
    """

    text: str
    lemma: str
    tag: str
    start: int
    end: int
    after_break: bool = False

    def is_a(self, *starts: str) -> bool:
        """Returns whether the tag starts with one of ``starts``."""
        return self.tag.startswith(starts)


def sentences(caption: str) -> list[list[TaggedWord]]:
    """Returns the words of each sentence. Accepts any text; an empty caption has no sentence."""
    plain = _DECIMAL.sub("0", caption.replace("’", "'").replace("_", " "))
    found = []
    for sentence in _SENTENCE.finditer(plain):
        matches = [match for match in WORD_PATTERN.finditer(sentence[0]) if match[0] not in _BREAKS]
        # The tagger mistakes any capitalized noun at the start of a sentence for a name.
        tagged = tag_words([match[0] if number else match[0].lower() for number, match in enumerate(matches)])
        words, last = [], 0
        for match, (lemma, tag) in zip(matches, tagged, strict=True):
            start, end = sentence.start() + match.start(), sentence.start() + match.end()
            broken = any(sign in _BREAKS for sign in sentence[0][last : match.start()])
            words.append(TaggedWord(match[0].lower(), lemma, tag, start, end, broken))
            last = match.end()
        if words:
            found.append(words)
    return found
