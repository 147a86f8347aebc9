"""Words typical of one system: adjectives and nouns, by lemma, with the largest local mutual information.

What paper 3 shows in its tables 7 and 14. Tags and lemmas are HanTa's (the extra ``words``): a published tagger whose
English model comes in its package, so that nothing is loaded from elsewhere. The paper used spaCy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version

from tellapart.errors import UsageError, need_extra
from tellapart.language.english import analyser
from tellapart.metrics.results import POS, Association
from tellapart.utils.messages import track

Lemma = tuple[str, str]  # lemma in lower case, and part of speech: "adjective", "noun", or "" for any other
Tagger = Callable[[str], Sequence[Lemma]]

# HanTa speaks CLAWS 5. Proper nouns (NP0) are another part of speech, as in spaCy.
_POS_OF_TAG = {"AJ0": "adjective", "AJC": "adjective", "AJS": "adjective", "NN0": "noun", "NN1": "noun", "NN2": "noun"}


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
    _check_systems(systems)
    need_extra("words", "the analysis of words", "HanTa")


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


def tagger_signature() -> str:
    """Names measure, parts of speech, and tagger with its version: analyses compare where these are equal."""

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
