"""Detects when torch runs out of memory, and then halves the batch size."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from tellapart.errors import TellapartError
from tellapart.utils.messages import say

R = TypeVar("R")
# Messages from torch allocators that raise a plain RuntimeError: CPU (two variants) and MPS.
OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True if torch failed to allocate memory, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in OUT_OF_MEMORY_MESSAGES)


class BatchSize:
    """A batch size that starts at ``size`` and is halved permanently whenever memory runs out."""

    def __init__(self, size: int, what: str) -> None:
        self.size, self.what = size, what

    def batches(self, count: int, work: Callable[[slice], R]) -> Iterator[R]:
        """Yields the results of ``work`` for successive slices of ``count`` items.

        Raises `TellapartError` if even a single item does not fit into memory.
        """
        start = 0
        while start < count:
            stop, failed = min(start + self.size, count), False
            try:
                result = work(slice(start, stop))
            except RuntimeError as error:  # includes torch.OutOfMemoryError
                if not is_out_of_memory(error):
                    raise
                failed = True  # the memory that `work` used is freed only after this block
            if failed:
                self._halve(stop - start)
            else:
                start = stop
                yield result

    def _halve(self, tried: int) -> None:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
        if tried == 1:
            raise TellapartError(
                f"out of memory with a single picture ({self.what}); try --precision bf16 or --device cpu"
            )
        self.size = max(1, tried // 2)
        say(f"out of memory with batches of {tried} pictures ({self.what}); continuing with batches of {self.size}")
