"""Random numbers that are the same on every machine and every Python.

Only `random.Random.random` is used: Python promises its stream for a given integer seed; the stream of
``choice`` or ``shuffle``, and of NumPy's generators, may change between versions.
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
    """A 64-bit number from the parts' text; equal everywhere, unlike `hash`."""
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@lru_cache(maxsize=256)
def _cumulative(weights: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(weights))


@lru_cache(maxsize=64)
def _zipf(length: int, power: float) -> tuple[float, ...]:
    # Rounded: a libm that differs in the last bit must not change a choice.
    return tuple(round((rank + 1) ** -power, 9) for rank in range(length))


class RandomStream:
    """A random stream, seeded by the text of its parts."""

    def __init__(self, *parts: object) -> None:
        self._random = random.Random(digest(*parts)).random

    def uniform(self) -> float:
        """In [0, 1)."""
        return self._random()

    def randrange(self, stop: int) -> int:
        """An integer in 0..stop-1."""
        return int(self._random() * stop)

    def bernoulli(self, probability: float) -> bool:
        """True with this probability; never at 0, always at 1."""
        return self._random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """An option, uniformly."""
        return options[int(self._random() * len(options))]

    def weighted_choice(self, options: Sequence[T], weights: tuple[float, ...]) -> T:
        """An option in proportion to its weight."""
        sums = _cumulative(weights)
        return options[bisect_right(sums, self._random() * sums[-1], 0, len(sums) - 1)]

    def zipf_choice(self, options: Sequence[T], power: float = 1.2) -> T:
        """The option of rank r in proportion to r^−power: a long tail."""
        return self.weighted_choice(options, _zipf(len(options), power))

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different options, in random order."""
        rest = list(options)
        return [rest.pop(int(self._random() * len(rest))) for _ in range(count)]


def permuted(index: int, length: int, key: int) -> int:
    """Where ``index`` goes under a fixed permutation of range(length), without listing it.

    A four-round Feistel network over the next even number of bits; values outside the range follow their cycle, so the
    result is a bijection of range(length).
    """
    half = max(1, ((length - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(4):
            mixed = (right * 0x9E3779B1 + key + turn * 0x85EBCA6B) & 0xFFFFFFFFFFFF
            mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFFFFFF
            left, right = right, left ^ ((mixed ^ (mixed >> 13)) & mask)
        index = (left << half) | right
        if index < length:
            return index
