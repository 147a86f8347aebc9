"""Computes a fixed permutation of a range without storing it."""

from __future__ import annotations


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
