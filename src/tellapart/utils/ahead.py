"""Work done ahead of the one who needs it, in threads, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS = 8  # more wait for each other: between calls into C they take turns
MOST_BYTES = 512 << 20


def ahead(
    work: Callable[[T], R],
    things: Iterable[T],
    *,
    buffer: int,
    threads: int | None = None,
    size: Callable[[T], int] = lambda thing: 0,
) -> Generator[R, None, None]:
    """``work`` of each of ``things``, in order; up to ``buffer`` results are ready, or under way, before their turn.

    ``threads``: by default one for each core, at most `MOST_THREADS`. ``size``: of a thing in bytes; no further ones
    are taken while those under way have `MOST_BYTES`. What ``work`` raises is raised where its result would come.
    Closing the iterator, or Ctrl-C, drops what has not begun.
    """
    threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
    rest, pending = iter(things), deque[tuple[int, Future[R]]]()
    pool = ThreadPoolExecutor(threads, "ahead")

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
