"""Frequent words that fit nearly all pictures."""

from collections.abc import Sequence

import numpy as np

from tellapart.purposes.generic_words import words_that_fit_all
from tellapart.purposes.lora import LoraCaptions


class Finder:
    """Cosines as a scorer would give them: every picture has a dog, and half of them a hat."""

    def cosines(self, texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
        rows = {"dog": [0.3, 0.31, 0.32, 0.3, 0.31, 0.32], "hat": [0.1, 0.3, 0.1, 0.3, 0.1, 0.3]}
        return [f"{n}.jpg" for n in range(6)], np.array([rows.get(text, [0.0] * 3 + [0.5] * 3) for text in texts])


def test_words_that_fit_all_pictures_are_named() -> None:
    captions = {f"{n}.jpg": ("a dog" if n < 3 else "a puppy") + (" in a hat" if n % 2 else "") for n in range(6)}
    shares = LoraCaptions("ohwx").evidence(captions)
    lines = list(words_that_fit_all(shares, captions, Finder(), "clip"))  # type: ignore[arg-type]
    assert lines == [
        "“dog” occurs in 50% of the captions, and according to clip it also fits 67% of "
        "the other pictures; --avoid dog removes it"
    ]
