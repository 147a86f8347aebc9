"""Returns memory that training has freed to the system."""

from __future__ import annotations

import ctypes
import sys
import time

SECONDS = 30.0


class FreedMemory:
    """Returns memory that the C library has freed to the system, every `SECONDS` seconds.

    Tensors of many sizes fragment glibc's heap: a long training run on a CPU can occupy twice as much memory as it uses
    (docs/research). A call takes a tenth of a second for a few gigabytes.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        # Other C libraries do not have this function, and do not need it.
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def give_back(self) -> None:
        if self._trim is not None and time.monotonic() - self._last >= SECONDS:
            self._trim(0)
            self._last = time.monotonic()
