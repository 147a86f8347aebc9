"""Batches that become smaller where memory runs out, and freed memory that goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tellapart.errors import TellapartError
from tellapart.utils.messages import say

R = TypeVar("R")

# What allocators of torch say where they raise a plain RuntimeError: the CPU's (two ways), MPS.
WORDS = ("can't allocate memory", "not enough memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch could not allocate memory, on an accelerator or on the CPU."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS)


class FreedMemory:
    """Gives back to the system, every so many ``seconds``, what the C library keeps of freed memory.

    Tensors of many sizes leave holes in glibc's heap, which it keeps: in a long training on a CPU as much again as is
    used (docs/log.md). A call takes a tenth of a second for a few gigabytes.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds, self._last = seconds, time.monotonic()
        # Other C libraries have no such call, and need none.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def give_back(self) -> None:
        if self._trim is not None and time.monotonic() - self._last >= self._seconds:
            self._trim(0)
            self._last = time.monotonic()


class BatchSize:
    """How many items are worked on at once: ``size`` until memory runs out, then half as many, from then on."""

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what

    def batches(self, count: int, work: Callable[[slice], R]) -> Iterator[R]:
        """``work`` of slices of ``count`` items, one after the other. Raises `TellapartError` where one is too many."""
        start = 0
        while start < count:
            chosen = slice(start, min(start + self.size, count))
            if (result := self._tried(chosen, work)) is None:
                self._halve(chosen.stop - start)
                continue
            start = chosen.stop
            yield result[0]

    @staticmethod
    def _tried(chosen: slice, work: Callable[[slice], R]) -> tuple[R] | None:
        """The result, or None where memory ran out: whatever the work held is free on return."""
        try:
            return (work(chosen),)
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            if not is_out_of_memory(error):
                raise
            return None

    def _halve(self, tried: int) -> None:
        import torch

        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        if tried == 1:
            raise TellapartError(
                f"out of memory with one picture at once ({self.what}); type: --precision bf16, or --device cpu"
            )
        self.size = max(1, tried // 2)
        say(f"out of memory with {tried} pictures at once ({self.what}); going on with {self.size}")
