"""Distributes row-wise Python work over this machine's cores with forked processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

MAX_PROCESSES = 4  # including this process
Work = Callable[[range], np.ndarray]

_work: Work | None = None  # inherited by forked processes, because closures cannot be pickled


def cores() -> int:
    """Returns the number of cores that this process may use: those in its CPU affinity, at most ``OMP_NUM_THREADS``."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(allowed, int(limit)) if limit.isdigit() and int(limit) else allowed


def rows_of(work: Work, count: int, least: int) -> np.ndarray:
    """Computes ``work(range(count))``, one float64 row per number, with at least ``least`` rows per process.

    Does not fork if other threads are running or torch is loaded, because a fork loses those threads. Recomputes the
    rows of a process that dies.

    Args:
        work: a function of the row numbers; rows must be independent of each other.
    """
    global _work
    parts = min(MAX_PROCESSES, cores(), count // least)
    if parts < 2 or "torch" in sys.modules or threading.active_count() > 1 or not hasattr(os, "fork"):
        return work(range(count))
    first, *others = itertools.starmap(range, itertools.pairwise(count * part // parts for part in range(parts + 1)))
    _work = work
    with warnings.catch_warnings(), ProcessPoolExecutor(parts - 1, multiprocessing.get_context("fork")) as pool:
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which OpenBLAS stops before a fork
        futures = [_submit(pool, rows) for rows in others]
        parts_of_rows = [work(first)]
        for rows, future in zip(others, futures, strict=True):
            try:
                parts_of_rows.append(future.result())
            except (BrokenProcessPool, OSError):
                parts_of_rows.append(work(rows))
    return np.concatenate(parts_of_rows)


def _submit(pool: ProcessPoolExecutor, rows: range) -> Future[np.ndarray]:
    """Submits rows. If a process has already died, returns a failed future, where `submit` would raise the error."""
    try:
        return pool.submit(_inherited, rows)
    except BrokenProcessPool as error:
        failed: Future[np.ndarray] = Future()
        failed.set_exception(error)
        return failed


def _inherited(rows: range) -> np.ndarray:
    assert _work is not None
    return _work(rows)
