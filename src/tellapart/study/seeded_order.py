"""Puts numbers in a random order that depends only on a seed and a purpose."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def shuffled(numbers: Sequence[int], seed: str, purpose: str) -> list[int]:
    """Returns the numbers in a random order that depends only on ``seed`` and ``purpose``."""

    def key(number: int) -> bytes:
        return hashlib.blake2b(f"{seed}\0{purpose}\0{number}".encode(), digest_size=16).digest()

    return sorted(numbers, key=key)
