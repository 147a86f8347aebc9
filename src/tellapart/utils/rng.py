"""Reproducible random numbers for each item, regardless of its batch.

Every draw is a function of (purpose, seed, step, item id, sample), computed by the counter-based generator
Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", table 2). Draws therefore do not
depend on the batch size or on the number and order of the items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

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
        """Returns (B·samples)×count float64 numbers in [0, 1). An item's samples are consecutive rows.

        Draws for different purposes are independent. A larger ``count`` extends each row, and more ``samples`` append
        rows to each item, without changing the existing numbers.
        """
        import torch

        blocks = -(-count // 2)  # one Philox block has 128 bits, enough for two doubles of 53 bits
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
    """Computes Philox4x32-10: four random 32-bit words per key and counter, uint64 N×4. Broadcasts leading axes."""
    low, half = np.uint64(WORD), np.uint64(32)
    a, b, c, d = (counter_N4[..., place] for place in range(4))
    key0, key1 = key_N2[..., 0], key_N2[..., 1]
    for _ in range(ROUNDS):
        first, second = a * np.uint64(MULTIPLIERS[0]), c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (second >> half) ^ b ^ key0, second & low, (first >> half) ^ d ^ key1, first & low
        key0, key1 = (key0 + np.uint64(WEYL[0])) & low, (key1 + np.uint64(WEYL[1])) & low
    return np.stack([a, b, c, d], axis=-1)
