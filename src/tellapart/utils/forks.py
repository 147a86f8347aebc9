"""Work in Python that goes by rows, shared among the cores of this machine by forked processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

MAX_PROCESSES = 4  # this one included
Work = Callable[[range], np.ndarray]

_work: Work | None = None  # what the forked processes inherit: a closure cannot be sent to them


def cores() -> int:
    """Returns how many cores this process may use: those of its affinity, at most ``OMP_NUM_THREADS``."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(allowed, int(limit)) if limit.isdigit() and int(limit) else allowed


def rows_of(work: Work, count: int, least: int) -> np.ndarray:
    """Returns ``work(range(count))``, a float64 row for each number; each process does ``least`` rows or more.

    Everything is done in this process if other threads run, or if torch is loaded, whose threads a fork would lose; and
    so is the share of a process that died.

    Args:
        work: must not depend on what the work on another row leaves behind.
    """
    global _work
    parts = min(MAX_PROCESSES, cores(), count // least)
    if parts < 2 or "torch" in sys.modules or threading.active_count() > 1 or not hasattr(os, "fork"):
        return work(range(count))
    first, *others = itertools.starmap(range, itertools.pairwise(count * part // parts for part in range(parts + 1)))
    _work = work
    with warnings.catch_warnings(), ProcessPoolExecutor(parts - 1, multiprocessing.get_context("fork")) as pool:
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which OpenBLAS puts away before a fork
        futures = [pool.submit(_inherited, rows) for rows in others]
        parts_of_rows = [work(first)]
        for rows, future in zip(others, futures, strict=True):
            try:
                parts_of_rows.append(future.result())
            except (BrokenProcessPool, OSError):
                parts_of_rows.append(work(rows))
    return np.concatenate(parts_of_rows)


def _inherited(rows: range) -> np.ndarray:
    assert _work is not None
    return _work(rows)
