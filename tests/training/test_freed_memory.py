"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")
PROGRAM = """
import psutil, torch
from tellapart.training import freed_memory

resident = lambda: psutil.Process().memory_info().rss
pairs = [(torch.ones(20_000), torch.ones(5_000)) for _ in range(1_000)]  # 80 MB in pieces, 20 MB between them
kept = [small for _, small in pairs]
del pairs
before = resident()
freed = freed_memory.FreedMemory()
freed.give_back()
early = resident()
freed_memory.SECONDS = 0.0
freed.give_back()
print(before - early, before - resident(), all(bool((small == 1).all()) for small in kept))
"""


@pytest.mark.long
@pytest.mark.skipif(not GLIBC, reason="the C library is not glibc, which keeps what is freed")
def test_holes_between_what_is_kept_are_given_back() -> None:
    """In a process of its own: what other tests left decides where memory comes from."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    early, given, whole = done.stdout.split()
    assert int(early) < 20_000_000 < 40_000_000 < int(given) and whole == "True"
