"""Work in Python that goes by rows, shared among the cores of this machine by forked processes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable

import numpy as np

MOST = 4  # processes, of which this one is one


def cores() -> int:
    """Returns how many cores this process may use: those of its affinity, at most ``OMP_NUM_THREADS``."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(allowed, int(limit)) if limit.isdigit() and int(limit) else allowed


def rows_of(work: Callable[[range], np.ndarray], count: int, least: int) -> np.ndarray:
    """Returns ``work(range(count))``, a row for each number; each process does ``least`` rows or more.

    work: gives float64 rows, all of one length, and depends on nothing that another row's work leaves behind. Where
    other threads run, or torch is loaded, whose threads a fork would lose, all is done here. So it is with what a
    process that failed should have done.
    """
    parts = min(MOST, cores(), count // least)
    if parts < 2 or "torch" in sys.modules or threading.active_count() > 1 or not hasattr(os, "fork"):
        return work(range(count))
    edges = [count * part // parts for part in range(parts + 1)]
    ranges = [range(begin, end) for begin, end in itertools.pairwise(edges)]
    gc.freeze()  # else the first collection of each process copies all that is alive
    children: list[_Child] = []
    try:
        with contextlib.suppress(OSError):  # no further process is to be had
            for rows in ranges[1:]:
                children.append(_Child(work, rows))
        own = work(ranges[0])
        others = [child.rows(own.shape[1:]) for child in children]
        return np.concatenate([own, *others, *[work(rows) for rows in ranges[1 + len(children) :]]])
    finally:
        for child in children:
            child.end()
        gc.unfreeze()


class _Child:
    """A forked process that does some of the rows and writes them into a pipe."""

    def __init__(self, work: Callable[[range], np.ndarray], rows: range) -> None:
        self.work, self.range = work, rows
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which OpenBLAS puts away before a fork
            self.pid = os.fork()
        if not self.pid:
            try:
                os.close(reading)
                gc.disable()
                with os.fdopen(writing, "wb") as pipe:
                    pipe.write(work(rows).tobytes())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        self.pipe = os.fdopen(reading, "rb")

    def rows(self, shape: tuple[int, ...]) -> np.ndarray:
        """Returns what it found, or does its work here where it failed."""
        found = np.frombuffer(self.pipe.read(), dtype=float)
        if found.size != len(self.range) * int(np.prod(shape)):
            return self.work(self.range)
        return found.reshape(len(self.range), *shape)

    def end(self) -> None:
        """Ends the process, which has found what it had to unless this one was stopped."""
        self.pipe.close()
        os.kill(self.pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
        os.waitpid(self.pid, 0)
