"""Computes results in threads ahead of their use, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent import futures
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
MOST_THREADS = 8  # more would wait for each other, because only one thread at a time runs Python code
MOST_BYTES = 512 << 20


def ahead(
    work: Callable[[T], R],
    things: Iterable[T],
    *,
    buffer: int,
    threads: int | None = None,
    size: Callable[[T], int] = lambda thing: 0,
) -> Generator[R, None, None]:
    """Yields ``work(thing)`` for each of ``things``, in order, and computes up to ``buffer`` results ahead.

    An exception in ``work`` is raised in place of its result. Closing the iterator or pressing Ctrl-C cancels the calls
    that have not been started.

    threads: number of threads. Default: one per core, at most `MOST_THREADS`.
    size: returns the size of a thing in bytes. No calls are started while the things in progress add up to `MOST_BYTES`
        or more.
    """
    threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
    rest, pending = iter(things), deque[tuple[int, "futures.Future[R]"]]()
    pool = futures.ThreadPoolExecutor(threads, "ahead")

    def fill() -> None:
        while len(pending) < max(buffer, 1) and sum(held for held, _ in pending) < MOST_BYTES:
            for thing in islice(rest, 1):
                pending.append((size(thing), pool.submit(work, thing)))
                break
            else:
                return

    try:
        fill()
        while pending:
            result = pending.popleft()[1].result()
            fill()
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
