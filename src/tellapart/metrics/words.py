"""Which words are one system's own: adjectives and nouns, by lemma, with the largest local mutual information.

What paper 3 shows in its tables 7 and 14. Tags and lemmas are HanTa's (the extra ``words``): a published tagger whose
English model comes in its package, so that nothing is loaded from elsewhere. The paper used spaCy.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tellapart.errors import MissingExtra, UsageError
from tellapart.metrics.results import POS, Association
from tellapart.progress import track

if TYPE_CHECKING:
    pass


Lemma = tuple[str, str]  # lemma in lower case, and part of speech: "adjective", "noun", or "" for any other
Tagger = Callable[[str], Sequence[Lemma]]

# HanTa speaks CLAWS 5. Proper nouns (NP0) are another part of speech, as in spaCy.
_POS_OF_TAG = {"AJ0": "adjective", "AJC": "adjective", "AJS": "adjective", "NN0": "noun", "NN1": "noun", "NN2": "noun"}
# Words with inner hyphens, and the pieces that the tagger's own corpus cuts off: don't is "do n't", dog's is "dog 's".
WORD_PATTERN = re.compile(r"\w+(?:-\w+)*?(?=n['’]t\b)|n['’]t\b|['’]\w+|\w+(?:-\w+)*|[.,;:!?]")


def associated_words(
    captions: Mapping[str, Sequence[str]], n: int = 10, tag: Tagger | None = None
) -> dict[str, list[Association]]:
    """The ``n`` adjectives, then the ``n`` nouns, most associated with each system's captions (paper 3, table 7).

    Words with a local mutual information above 0 only: those that a system uses more than all do together. Raises
    `UsageError` for fewer than two systems, between which words could be told apart, and `MissingExtra` without HanTa.
    """
    _check_systems(len(captions))
    if tag is None:
        check_words(len(captions))
        tag = hanta()
    counts = {system: _counts(texts, tag, system) for system, texts in captions.items()}
    found = local_mutual_information(counts)
    return {system: [word for pos in POS for word in _largest(own, pos, n)] for system, own in found.items()}


def local_mutual_information(counts: Mapping[str, Counter[Lemma]]) -> dict[str, list[Association]]:
    """f(w, c) · ln(f(w, c) · N / (f(w) · f(c))) of every lemma w and system c, in nats (Evert 2005).

    f are frequencies and N is that of all words of all systems, whatever their part of speech.
    """
    of_word: Counter[Lemma] = Counter()
    for own in counts.values():
        of_word.update(own)
    total = of_word.total()
    return {
        system: [
            Association(*word, times * math.log(times * total / (of_word[word] * size)), times)
            for word, times in own.items()
        ]
        for system, own in counts.items()
        for size in [own.total()]
    }


def check_words(systems: int) -> None:
    """`UsageError` for fewer than two systems, `MissingExtra` where there is no tagger; nothing is loaded."""
    from importlib.util import find_spec

    _check_systems(systems)
    if find_spec("HanTa") is None:
        raise MissingExtra("words", "the analysis of words")


def _check_systems(systems: int) -> None:
    if systems < 2:
        raise UsageError("words are told apart between systems; give a second --captions FILE, or add --human first")


@cache
def hanta() -> Tagger:
    """HanTa's English tagger, on a caption as text. Punctuation is read, and not returned."""
    analysis = analyser()

    def tag(caption: str) -> list[Lemma]:
        return [(lemma, _POS_OF_TAG.get(pos, "")) for _, lemma, pos in analysis(caption)]

    return tag


LONGEST_WORD = 100


@cache
def _tagger() -> Any:
    from HanTa.HanoverTagger import HanoverTagger

    return HanoverTagger("morphmodel_en.pgz")


def tag_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """(lemma in lower case, CLAWS 5 tag) of each word of a sentence; HanTa's."""
    # The tagger's time grows with the square of a word's length, and no word is as long as this.
    tagged = _tagger().tag_sent([word[:LONGEST_WORD] for word in words]) if words else []
    return [(lemma.lower(), tag) for _, lemma, tag in tagged]


@cache
def analyser() -> Callable[[str], list[tuple[str, str, str]]]:
    """Each word of a caption as (word, lemma, CLAWS 5 tag), the first two in lower case; HanTa's, see `hanta`."""

    def analyse(caption: str) -> list[tuple[str, str, str]]:
        words = [word[:LONGEST_WORD] for word in WORD_PATTERN.findall(caption.replace("’", "'"))]
        tagged = zip(words, tag_words(words), strict=True)
        return [(word.lower(), lemma, tag) for word, (lemma, tag) in tagged if not tag.startswith("PU")]

    return analyse


def tagger_signature() -> str:
    """What two analyses must share: the tagger and its version."""
    from importlib.metadata import version

    return f"lmi:nats|pos:adjective,noun|tagger:HanTa-{version('HanTa')}-en"


def _counts(texts: Iterable[str], tag: Tagger, system: str) -> Counter[Lemma]:
    times = Counter(texts)
    found: Counter[Lemma] = Counter()
    for text in track(list(times), len(times), f"tagging words ({system})"):
        for word in tag(text):
            found[word] += times[text]
    return found


def _largest(found: Iterable[Association], pos: str, n: int) -> list[Association]:
    own = [word for word in found if word.pos == pos and word.lmi > 0]
    return sorted(own, key=lambda word: (-word.lmi, word.lemma))[:n]
