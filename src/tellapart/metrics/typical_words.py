"""Finds the words that are typical of a system: the adjectives and nouns with the largest local mutual information.

Reproduces tables 7 and 14 in paper 3. Tags and lemmas come from HanTa (the ``words`` extra), a published tagger whose
package includes an English model, so nothing is downloaded. The paper used spaCy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from tellapart.errors import UsageError, need_extra
from tellapart.language.tagged_words import analyse
from tellapart.utils.progress import track

Lemma = tuple[str, str]  # lemma in lower case, and part of speech: "adjective", "noun", or "" for all others
Tagger = Callable[[str], Sequence[Lemma]]

POS = ("adjective", "noun")
WORDS_KEY = "words"  # key of the word analysis in the signatures; it is not a score
# HanTa uses the CLAWS 5 tag set. Proper nouns (NP0) are a separate part of speech, as in spaCy.
_POS_OF_TAG = {"AJ0": "adjective", "AJC": "adjective", "AJS": "adjective", "NN0": "noun", "NN1": "noun", "NN2": "noun"}


@dataclass(frozen=True, slots=True)
class Association:
    """A lemma that is typical of a system's captions, with its association and its count."""

    lemma: str
    pos: str
    lmi: float
    count: int


def associated_words(
    captions: Mapping[str, Sequence[str]], n: int = 10, tag: Tagger | None = None
) -> dict[str, list[Association]]:
    """For each system, returns the ``n`` adjectives and then the ``n`` nouns most associated with it (paper 3, table
    7).

    Includes only words with positive local mutual information, that is, words that the system uses more often than the
    systems do on average. Raises `UsageError` for fewer than two systems, and `MissingExtra` if HanTa is not installed.
    """
    _check_systems(len(captions))
    if tag is None:
        check_words(len(captions))
        tag = hanta()
    counts = {system: _counts(texts, tag, system) for system, texts in captions.items()}
    found = local_mutual_information(counts)
    return {system: [word for pos in POS for word in _largest(own, pos, n)] for system, own in found.items()}


def local_mutual_information(counts: Mapping[str, Counter[Lemma]]) -> dict[str, list[Association]]:
    """Computes f(w, c) · ln(f(w, c) · N / (f(w) · f(c))) for every lemma w and system c, in nats (Evert 2005).

    f denotes frequencies. N is the number of words in all systems' captions, whatever their part of speech.
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
    """Checks the requirements without loading the tagger. Raises `UsageError` for fewer than two systems, and
    `MissingExtra` if the tagger is not installed.
    """
    _check_systems(systems)
    need_extra("words", "word analysis", "HanTa")


def _check_systems(systems: int) -> None:
    if systems < 2:
        raise UsageError("word analysis compares systems; add a second --captions FILE, or --human first")


@cache
def hanta() -> Tagger:
    """Returns HanTa's English tagger for captions. The tagger uses punctuation marks but does not return them."""

    def tag(caption: str) -> list[Lemma]:
        return [(lemma, _POS_OF_TAG.get(pos, "")) for _, lemma, pos in analyse(caption)]

    return tag


def tagger_signature() -> str:
    """Identifies the measure, the parts of speech, and the tagger's version. Analyses are comparable only if
    their signatures are equal.
    """

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
