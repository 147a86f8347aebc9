"""Sequential random numbers that are the same on every machine and Python version, as the synthetic world requires.

`RandomStream` uses only `random.Random.random`, whose stream Python guarantees for a given integer seed; the streams of
``choice``, ``shuffle`` and NumPy's generators may change between versions. It is a separate generator because it
determines the pictures of `scenes`, and because drawing single numbers from Philox is a hundred times slower.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")


def digest(*parts: object) -> int:
    """Hashes the text of the parts to 64 bits. Unlike `hash`, returns the same value on all machines."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@lru_cache(maxsize=256)
def _cumulative(weights: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(weights))


@lru_cache(maxsize=64)
def _zipf(length: int) -> tuple[float, ...]:
    # Rounded, so that a libm that differs in the last bit does not change a choice.
    return tuple(round((rank + 1) ** -1.2, 9) for rank in range(length))


class RandomStream:
    """A random stream seeded by the text of its parts."""

    def __init__(self, *parts: object) -> None:
        self._random = random.Random(digest(*parts)).random

    def uniform(self) -> float:
        """Returns a number in [0, 1)."""
        return self._random()

    def randrange(self, stop: int) -> int:
        """Returns an integer in 0..stop-1."""
        return int(self._random() * stop)

    def bernoulli(self, probability: float) -> bool:
        """Returns True with this probability (never for 0, always for 1)."""
        return self._random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """Draws one option uniformly."""
        return options[int(self._random() * len(options))]

    def weighted_choice(self, options: Sequence[T], weights: tuple[float, ...]) -> T:
        """Draws one option with probability proportional to its weight."""
        sums = _cumulative(weights)
        return options[bisect_right(sums, self._random() * sums[-1], 0, len(sums) - 1)]

    def zipf_choice(self, options: Sequence[T]) -> T:
        """Draws one option with probability proportional to r^−1.2, where r ≥ 1 is its rank (long-tailed)."""
        return self.weighted_choice(options, _zipf(len(options)))

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """Draws ``count`` distinct options, in random order."""
        rest = list(options)
        return [rest.pop(int(self._random() * len(rest))) for _ in range(count)]
