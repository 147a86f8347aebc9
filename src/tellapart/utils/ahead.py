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


def ahead(
    work: Callable[[T], R], things: Iterable[T], *, buffer: int, threads: int | None = None
) -> Generator[R, None, None]:
    """``work`` of each of ``things``, in order; up to ``buffer`` results are ready, or under way, before their turn.

    ``threads``: by default one for each core, at most `MOST_THREADS`. What ``work`` raises is raised where its result
    would come. Closing the iterator, or Ctrl-C, drops what has not begun.
    """
    threads = threads or min(MOST_THREADS, os.cpu_count() or 1)
    rest, pending = iter(things), deque[Future[R]]()
    pool = ThreadPoolExecutor(threads, "ahead")
    try:
        pending.extend(pool.submit(work, thing) for thing in islice(rest, max(buffer, 1)))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(work, thing) for thing in islice(rest, 1))
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
