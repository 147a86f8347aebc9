"""Finds frequent words in captions that fit nearly all pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tellapart.captions.paths_beside import NAMED_FILES
from tellapart.language.phrase_search import has_phrase
from tellapart.purposes.lora import WordShare
from tellapart.review.fit_finder import FitFinder

FREQUENT, FITS_ALL = 0.2, 0.6  # minimum share of captions that contain a word, and of the other pictures that it fits


def words_that_fit_all(
    shares: Sequence[WordShare], captions: Mapping[str, str], finder: FitFinder, scorer: str
) -> Iterator[str]:
    """Yields a line for each frequent word that also fits most pictures whose captions omit it.

    A word fits a picture if their cosine reaches the first quartile over the pictures whose captions contain the word.
    """
    said: dict[str, str] = {}
    for key, text in captions.items():
        id_ = key.partition("\n")[0]
        said[id_] = f"{said.get(id_, '')} {text}"
    some = [one for one in shares if not one.left_out and one.share >= FREQUENT and len(one.key) == 1][:NAMED_FILES]
    ids, cosine_CN = finder.cosines([one.word for one in some])
    for one, cosine_N in zip(some, cosine_CN, strict=True):
        says_N = np.array([has_phrase(said.get(id_, ""), one.word) for id_ in ids])
        if says_N.any() and not says_N.all():
            fits = float((cosine_N[~says_N] >= np.quantile(cosine_N[says_N], 0.25)).mean())
            if fits >= FITS_ALL:
                yield (
                    f"“{one.word}” occurs in {100 * one.share:.0f}% of the captions, and according "
                    f"to {scorer} it also fits {100 * fits:.0f}% of the other pictures; --avoid "
                    f"{one.word} removes it"
                )
