"""Finds what several captions of one picture agree on, and what only some of them say.

A claim that only one of several samples makes is more often wrong. People who cannot see a picture notice several times
as many unreliable claims if they are shown this variation (https://arxiv.org/abs/2507.15692).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from tellapart.language.sentences import sentences
from tellapart.language.word_runs import word_runs

AMOUNTS = ("all", "most", "some", "one")
LEAST = 3  # minimum number of samples; with two, a claim can only be in both or in one
FUNCTION_SHARE = 0.5  # words in more than this share of pictures are function words (not for English)
ENOUGH = 5  # number of pictures needed to tell which words are frequent

Variation = dict[str, int | list[str]]


def variations(captions: Mapping[str, Sequence[str]], language: str = "en") -> dict[str, Variation]:
    """Returns the variation for each picture that has at least `LEAST` captions.

    A variation maps each of `AMOUNTS` to the phrases that this many samples contain: ``all``, ``most`` (more than
    half), ``some`` (up to half, but at least two), or ``one``. ``samples`` is the number of samples.
    """
    sampled = {id_: texts for id_, texts in captions.items() if len(texts) >= LEAST}
    common = set[str]()
    if language.lower().partition("-")[0] not in ("", "en") and len(sampled) >= ENOUGH:
        seen = Counter(word for texts in sampled.values() for word in {key for text in texts for key in _keys(text)})
        common = {word for word, count in seen.items() if count > FUNCTION_SHARE * len(sampled)}
    return {id_: _variation(texts, common) for id_, texts in sampled.items()}


def _keys(text: str) -> list[str]:
    return [key for part in sentences(text) for run in word_runs(part) for key, _ in run]


def _variation(texts: Sequence[str], common: set[str]) -> Variation:
    count = Counter(key for text in texts for key in set(_keys(text)) - common)

    def level(key: str) -> str:
        times = count[key]
        by_share = "all" if times == len(texts) else "most" if 2 * times > len(texts) else "some"
        return "one" if times == 1 else by_share

    phrases: dict[str, dict[tuple[str, ...], str]] = {name: {} for name in AMOUNTS}
    for text in texts:
        for part in sentences(text):
            for run in word_runs(part):
                said = [pair for pair in run if pair[0] in count]
                for name, group in groupby(said, lambda pair: level(pair[0])):
                    words = list(group)
                    phrase = part[words[0][1].start : words[-1][1].end]
                    phrases[name].setdefault(tuple(key for key, _ in words), phrase)
    shown = {name: _longest(some) for name, some in phrases.items()}
    return {"samples": len(texts)} | {name: some for name, some in shown.items() if some}


def _longest(phrases: Mapping[tuple[str, ...], str]) -> list[str]:
    """Returns the phrases, longest first, without those whose words are all part of a longer phrase."""
    kept: list[tuple[tuple[str, ...], str]] = []
    for keys, phrase in sorted(phrases.items(), key=lambda pair: -len(pair[0])):
        if not any(set(keys) <= set(other) for other, _ in kept):
            kept.append((keys, phrase))
    return [phrase for _, phrase in kept]
