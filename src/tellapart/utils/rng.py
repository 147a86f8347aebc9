"""Reproducible random numbers: per item, independently of its batch, and for the synthetic world.

`ItemSeeds`: every draw is a function of (purpose, seed, step, item id, sample), computed by the counter-based generator
Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", table 2). Draws therefore do not
depend on the batch size or on the number and order of the items.

`RandomStream`: sequential numbers without NumPy or torch, the same on every machine and Python version. It uses only
`random.Random.random`, whose stream Python guarantees for a given integer seed; the streams of ``choice``, ``shuffle``
and NumPy's generators may change between versions. It is a separate generator because it determines the pictures of
`scenes`, and because drawing single numbers from Philox is a hundred times slower.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class ItemSeeds:
    """Random numbers for B items at one ``step`` of a run with this ``seed``."""

    ids: tuple[str, ...]
    seed: int = 0
    step: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, items: slice) -> ItemSeeds:
        return ItemSeeds(self.ids[items], self.seed, self.step)

    def apart(self, name: str) -> ItemSeeds:
        """Returns independent seeds for the same items, e.g. for a second sampler in the same step."""
        return ItemSeeds(tuple(f"{name}\0{one}" for one in self.ids), self.seed, self.step)

    def uniform(self, purpose: str, count: int, samples: int = 1) -> torch.Tensor:
        """Returns (B·samples)×count float64 numbers in [0, 1); an item's samples are consecutive rows.

        Draws for different purposes are independent. A larger ``count`` extends each row, and more ``samples`` append
        rows to each item, without changing the existing numbers.
        """
        import torch

        blocks = -(-count // 2)  # one block of Philox is 128 bits, two doubles of 53
        key_B2 = np.frombuffer(b"".join(self._key(purpose, one) for one in self.ids), "<u4").reshape(-1, 2)
        shape = len(self.ids), samples, blocks
        counter_BSK4 = np.zeros((*shape, 4), np.uint64)
        counter_BSK4[..., 0] = np.arange(blocks, dtype=np.uint64)
        counter_BSK4[..., 1] = np.arange(samples, dtype=np.uint64)[:, None]
        words = philox(key_B2[:, None, None].astype(np.uint64), counter_BSK4)
        pairs = (words[..., ::2] >> np.uint64(5)) * np.uint64(1 << 26) + (words[..., 1::2] >> np.uint64(6))
        rows = pairs.astype(np.float64).reshape(shape[0] * samples, 2 * blocks) / (1 << 53)
        return torch.from_numpy(np.ascontiguousarray(rows[:, :count]))

    def orders(self, purpose: str, counts: Sequence[int]) -> list[list[int]]:
        """Returns a random permutation of range(count) for each item, all drawn at once."""
        uniform_BC = self.uniform(purpose, max(counts, default=0)).numpy()
        rows = zip(uniform_BC, counts, strict=True)
        return [row[:count].argsort(kind="stable").tolist() for row, count in rows]

    def _key(self, purpose: str, item: str) -> bytes:
        named = f"{purpose}\0{self.seed}\0{self.step}\0{item}"
        return hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def philox(key_N2: np.ndarray, counter_N4: np.ndarray) -> np.ndarray:
    """Computes Philox4x32-10: four random 32-bit words per key and counter, as uint64 N×4; leading axes broadcast."""
    low, half = np.uint64(WORD), np.uint64(32)
    a, b, c, d = (counter_N4[..., place] for place in range(4))
    key0, key1 = key_N2[..., 0], key_N2[..., 1]
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ key0, second & low, (first >> half) ^ d ^ key1, first & low
        key0, key1 = (key0 + np.uint64(WEYL[0])) & low, (key1 + np.uint64(WEYL[1])) & low
    return np.stack([a, b, c, d], axis=-1)


def digest(*parts: object) -> int:
    """Hashes the parts' text to 64 bits; the same on all machines, unlike `hash`."""
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
        """Returns True with this probability; never for 0, always for 1."""
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


def permuted(index: int, length: int, key: int) -> int:
    """Returns the image of ``index`` under a fixed permutation of range(length), without storing the permutation.

    Uses a four-round Feistel network over the next even number of bits. Values outside the range are mapped again until
    they fall into it (cycle walking), so the result is a bijection of range(length).
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
