"""An ordered thread pool. Threads process a stream, and the results are yielded in the stream's order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tellapart.utils.messages import say

T = TypeVar("T")
R = TypeVar("R")
GRACE_SECONDS = 10.0
TICK_SECONDS = 1.0


def in_order(
    work: Callable[[T], R],
    values: Iterable[T],
    threads: int,
    stop: threading.Event,
    *,
    window: int,
    finished: Callable[[], None] = lambda: None,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[R]:
    """Yields ``work(value)`` for every value, in order, using ``threads`` threads.

    At any time, at most ``window`` values have been taken from the stream but not yielded, which bounds the memory. A
    slow value delays the others only when the window is full. Raises the first error. When the iteration ends (by an
    error, by Ctrl-C, or because the caller stops), sets ``stop`` and waits at most `GRACE_SECONDS` for running threads,
    which are daemons.

    finished: called whenever a value has been processed.
    waiting: called whenever a second passes in which no value has been processed.
    """
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        while (task := tasks.get()) is not None:
            if stop.is_set():
                continue
            place, value = task
            try:
                done.put((place, work(value), None))
            except BaseException as error:
                done.put((place, None, error))

    workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    source = enumerate(values)
    ready: dict[int, R] = {}
    given = taken = 0
    try:
        while True:
            while given - taken < window and (task := next(source, None)) is not None:
                tasks.put(task)
                given += 1
            if taken == given:
                return
            try:
                place, result, error = done.get(timeout=TICK_SECONDS)
            except queue.Empty:
                waiting()
                continue
            if error is not None:
                raise error
            finished()
            ready[place] = result
            while taken in ready:
                yield ready.pop(taken)
                taken += 1
    except KeyboardInterrupt:
        say(f"interrupted; waiting at most {GRACE_SECONDS:.0f} s for what is in progress")
        raise
    finally:
        stop.set()
        for _ in workers:
            tasks.put(None)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
