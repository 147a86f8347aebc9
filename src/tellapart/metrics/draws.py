"""Seeded bootstrap resamples and permutations of units, which are items or clusters of dependent items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 1000
_FEW_CELLS = 1 << 23
_BLOCK_CELLS = 2_000_000  # maximum number of resampled cells in memory at once: 16 MB of indices
Weights = Callable[[int, int, int], Iterator[np.ndarray]]


def bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields, for each bootstrap resample, how often it draws each of n units, in blocks of resamples."""
    return _floats(_cached(_bootstrap_counts, n, resamples, seed))


def random_swaps(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yields, for each permutation, 1 for the units whose two systems it swaps and 0 for all other units, in blocks of
    permutations.
    """
    return _floats(_cached(_swaps, n, resamples, seed))


# Draws are kept, because all metrics and systems of an evaluation share them: as bytes, unless they are few. Systems
# with missing values differ in the number of units, so several small draws are kept.

_Draw = Callable[[int, int, int], np.ndarray]


def _cached(draw: _Draw, n: int, resamples: int, seed: int) -> np.ndarray:
    return (_cached_few if n * resamples <= _FEW_CELLS else _cached_many)(draw, n, resamples, seed)


@lru_cache(maxsize=16)
def _cached_few(draw: _Draw, n: int, resamples: int, seed: int) -> np.ndarray:
    return draw(n, resamples, seed)


@lru_cache(maxsize=4)
def _cached_many(draw: _Draw, n: int, resamples: int, seed: int) -> np.ndarray:
    return draw(n, resamples, seed)


def _kept_type(resamples: int, n: int) -> np.dtype[Any]:
    return np.dtype(float if resamples * n <= _FEW_CELLS else np.uint8)


def _bootstrap_counts(n: int, resamples: int, seed: int) -> np.ndarray:
    rng, count_RN = np.random.default_rng(seed), np.empty((resamples, n), _kept_type(resamples, n))
    for block in _blocks(resamples, n):
        item_RN = rng.integers(n, size=count_RN[block].shape)
        cell_RN = item_RN + n * np.arange(len(item_RN))[:, None]
        count_RN[block] = np.bincount(cell_RN.ravel(), minlength=cell_RN.size).reshape(cell_RN.shape)
    return count_RN


def _swaps(n: int, resamples: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 1])  # a random stream different from the bootstrap's
    swap_RN = np.empty((resamples, n), _kept_type(resamples, n))
    for block in _blocks(resamples, n):
        swap_RN[block] = rng.integers(2, size=swap_RN[block].shape, dtype=np.int8)
    return swap_RN


def disjoint_halves(n: int, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields pairs of disjoint halves of the items. If n is odd, one item is in neither half."""
    rng = np.random.default_rng(seed)
    for block in _blocks(resamples, n):
        place_RN = np.argsort(rng.random((block.stop - block.start, n)), axis=1)
        yield (place_RN < n // 2).astype(float), (place_RN >= n - n // 2).astype(float)


def _blocks(resamples: int, n: int) -> Iterator[slice]:
    rows = max(1, _BLOCK_CELLS // n)
    for start in range(0, resamples, rows):
        yield slice(start, min(start + rows, resamples))


def _floats(weight_RN: np.ndarray) -> Iterator[np.ndarray]:
    for block in _blocks(*weight_RN.shape):
        yield weight_RN[block].astype(float, copy=False)


class Draws(NamedTuple):
    """The number of resamples or permutations, and their seed."""

    resamples: int = RESAMPLES
    seed: int = 0

    def sums(self, weights: Weights, stats: np.ndarray) -> np.ndarray:
        """Sums statistics, N×…, in each resample or permutation. Returns R×…."""
        stats_NC = stats.reshape(len(stats), -1)
        sums = np.concatenate([weight_RN @ stats_NC for weight_RN in weights(len(stats), *self)])
        return sums.reshape(-1, *stats.shape[1:])
