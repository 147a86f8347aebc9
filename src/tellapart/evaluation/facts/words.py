"""A caption as tagged words with their places, sentence by sentence.

Tags and lemmas are HanTa's (the extra ``words``), in CLAWS 5: NN1 a noun, AJ0 an adjective, VVG a participle, PRP a
preposition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tellapart.errors import MissingExtra
from tellapart.metrics.words import WORD_PATTERN, tag_words

_SENTENCE = re.compile(r"[^.!?;\n]+")
_BREAKS = ',:()"“”–—'
_DECIMAL = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclass(frozen=True, slots=True)
class Word:
    """One word in lower case, its lemma and tag, and where it stands in the caption, in characters.

    ``after_break``: a comma, a colon or a bracket stands before it.
    """

    text: str
    lemma: str
    tag: str
    start: int
    end: int
    after_break: bool = False

    def is_a(self, *starts: str) -> bool:
        """Whether its tag starts with one of these."""
        return self.tag.startswith(starts)


def check_tagger() -> None:
    """`MissingExtra` where there is no tagger; nothing is loaded."""
    from importlib.util import find_spec

    if find_spec("HanTa") is None:
        raise MissingExtra("words", "the extraction of claims")


def sentences(caption: str) -> list[list[Word]]:
    """The words of each sentence. Text of any kind is read; an empty caption has no sentence."""
    plain = _DECIMAL.sub("0", caption.replace("’", "'").replace("_", " "))
    found = []
    for sentence in _SENTENCE.finditer(plain):
        matches = [match for match in WORD_PATTERN.finditer(sentence[0]) if match[0] not in _BREAKS]
        # A capital at the start of a sentence makes a name of any noun.
        tagged = tag_words([match[0] if number else match[0].lower() for number, match in enumerate(matches)])
        words, last = [], 0
        for match, (lemma, tag) in zip(matches, tagged, strict=True):
            start, end = sentence.start() + match.start(), sentence.start() + match.end()
            broken = any(sign in _BREAKS for sign in sentence[0][last : match.start()])
            words.append(Word(match[0].lower(), lemma, tag, start, end, broken))
            last = match.end()
        if words:
            found.append(words)
    return found
