"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import sys

import psutil
import pytest
import torch

from tellapart.models.memory import FreedMemory

GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.mark.skipif(not GLIBC, reason="the C library is not glibc, which keeps what is freed")
def test_holes_between_what_is_kept_are_given_back() -> None:
    pairs = [(torch.ones(20_000), torch.ones(10)) for _ in range(1_000)]  # 80 MB in pieces, with something between
    kept = [small for _, small in pairs]
    del pairs
    before = resident()
    FreedMemory(seconds=1e9).give_back()
    assert resident() > before - 20_000_000, "it is not yet time"
    FreedMemory(seconds=0).give_back()
    assert resident() < before - 40_000_000
    assert all(bool((small == 1).all()) for small in kept)
