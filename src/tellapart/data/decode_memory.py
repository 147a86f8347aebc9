"""Limits the total memory that the threads of a process use to decode pictures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_DECODE_BYTES = 2 << 30  # limit for all threads of a process; a larger picture is decoded alone
PIXEL_BYTES, LAYERED_BYTES = 8, 20  # peak memory per pixel while decoding, without and with transparency


class _Claimed(threading.local):
    """The share of `MAX_DECODE_BYTES` that a thread has claimed; None outside `decode_memory`."""

    held: int | None = None


_FREED, _HERE, _USED = threading.Condition(), _Claimed(), [0]


@contextmanager
def decode_memory() -> Iterator[None]:
    """Reserves memory for the pictures that a thread decodes in the block. Threads wait while the limit is exceeded."""
    if _HERE.held is not None:
        yield
        return
    _HERE.held = 0
    try:
        yield
    finally:
        with _FREED:
            _USED[0] -= _HERE.held
            _FREED.notify_all()
        _HERE.held = None


def claim(size: int) -> None:
    """Waits until ``size`` bytes are free. To avoid deadlocks, a thread that already holds memory does not wait."""
    with _FREED:
        if not _HERE.held:
            _FREED.wait_for(lambda: not _USED[0] or _USED[0] + size <= MAX_DECODE_BYTES)
        _USED[0] += size
        _HERE.held = (_HERE.held or 0) + size
