"""Tags the words of captions with HanTa (the extra ``words``).

HanTa provides lemmas and CLAWS 5 tags: for example, NN1 is a noun, AJ0 an adjective, VVG a participle, and PRP a
preposition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

# Words may contain hyphens. Contractions are split as in the tagger's training corpus ("do n't", "dog 's").
WORD_PATTERN = re.compile(r"\w+(?:-\w+)*?(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+(?:-\w+)*|[.,;:!?]")
LONGEST_WORD = 100  # in characters
_SENTENCE = re.compile(r"[^.!?;\n]+")
_BREAKS = ',:()"“”–—'
_DECIMAL = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A lower-cased word with its lemma, its tag, and its position in the caption, in characters.

    ``after_break``: whether a comma, a colon or a bracket precedes it.
    """

    text: str
    lemma: str
    tag: str
    start: int
    end: int
    after_break: bool = False

    def is_a(self, *starts: str) -> bool:
        """Returns whether the tag starts with any of ``starts``."""
        return self.tag.startswith(starts)


def sentences(caption: str) -> list[list[TaggedWord]]:
    """Returns the words in each sentence. Accepts any text; an empty caption has no sentences."""
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


@cache
def _tagger() -> Any:
    from HanTa.HanoverTagger import HanoverTagger

    return HanoverTagger("morphmodel_en.pgz")


def tag_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (lower-cased lemma, CLAWS 5 tag) from HanTa for each word in a sentence."""
    # The tagger's runtime is quadratic in a word's length, so words are cut. Real words are shorter than the limit.
    tagged = _tagger().tag_sent([word[:LONGEST_WORD] for word in words]) if words else []
    return [(lemma.lower(), tag) for _, lemma, tag in tagged]


def analyse(caption: str) -> list[tuple[str, str, str]]:
    """Analyzes a caption with HanTa, and returns (word, lemma, CLAWS 5 tag) for each word. Word and lemma are
    lower-cased.
    """
    words = [word[:LONGEST_WORD] for word in WORD_PATTERN.findall(caption.replace("’", "'"))]
    tagged = zip(words, tag_words(words), strict=True)
    return [(word.lower(), lemma, tag) for word, (lemma, tag) in tagged if not tag.startswith("PU")]
