"""64-bit hashes of words, and the rows of hashes in sorted tables."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def word_hash(word: str | int) -> int:
    """Returns a 64-bit hash of a word or token id that is the same in every process."""
    return int.from_bytes(blake2b(str(word).encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def find_hashes(table_G: np.ndarray, hash_N: np.ndarray) -> np.ndarray:
    """Returns the row of each hash in a table of ascending hashes, or −1 for an unknown hash."""
    if not len(table_G):
        return np.full(len(hash_N), -1)
    row_N = np.searchsorted(table_G, hash_N)
    row_N[row_N == len(table_G)] = 0
    return np.where(table_G[row_N] == hash_N, row_N, -1)
