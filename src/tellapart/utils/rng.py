"""Random numbers that never change: those of an item, whoever shares its batch, and those of the synthetic world.

`ItemSeeds`: every draw is a function of (purpose, seed, step, item id, sample), computed by a counter-based generator:
Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", table 2). So a draw does not change
with the batch size, with the order or the number of the items, or with those that were left out.

`RandomStream`: one number after another, without NumPy and torch, the same on every machine and every Python. Only
`random.Random.random` is used: Python promises its stream for a given integer seed; the stream of ``choice`` or
``shuffle``, and of NumPy's generators, may change between versions. It is a generator of its own because the pictures
of `scenes` are fixed by it, and because one number at a time costs Philox a hundred times as much.
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
    """The source of the random numbers of B items, at one ``step`` of a run with this ``seed``."""

    ids: tuple[str, ...]
    seed: int = 0
    step: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, items: slice) -> ItemSeeds:
        return ItemSeeds(self.ids[items], self.seed, self.step)

    def apart(self, name: str) -> ItemSeeds:
        """Returns independent numbers for the same items: for a second sampler, of this name, in the same step."""
        return ItemSeeds(tuple(f"{name}\0{one}" for one in self.ids), self.seed, self.step)

    def uniform(self, purpose: str, count: int, samples: int = 1) -> torch.Tensor:
        """(B·samples)×count numbers in [0, 1), float64, the samples of an item side by side.

        Draws for different purposes are independent. A row is the beginning of the same row with a larger ``count``,
        and an item's rows are the first of those with more ``samples``.
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
        """Returns a random order of so many things for each item, all drawn at once."""
        uniform_BC = self.uniform(purpose, max(counts, default=0)).numpy()
        rows = zip(uniform_BC, counts, strict=True)
        return [row[:count].argsort(kind="stable").tolist() for row, count in rows]

    def _key(self, purpose: str, item: str) -> bytes:
        named = f"{purpose}\0{self.seed}\0{self.step}\0{item}"
        return hashlib.blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def philox(key_N2: np.ndarray, counter_N4: np.ndarray) -> np.ndarray:
    """Philox4x32-10: four random 32-bit words for each key and counter, as uint64 N×4; leading axes broadcast."""
    low, half = np.uint64(WORD), np.uint64(32)
    a, b, c, d = (counter_N4[..., place] for place in range(4))
    key0, key1 = key_N2[..., 0], key_N2[..., 1]
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ key0, second & low, (first >> half) ^ d ^ key1, first & low
        key0, key1 = (key0 + np.uint64(WEYL[0])) & low, (key1 + np.uint64(WEYL[1])) & low
    return np.stack([a, b, c, d], axis=-1)


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
    """Returns where ``index`` goes under a fixed permutation of range(length), without listing it.

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
