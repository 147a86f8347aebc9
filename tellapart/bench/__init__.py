"""Side-by-side timings against the usual way: both in one run, alternately, with the same results."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tellapart.errors import UsageError, nearest

if TYPE_CHECKING:
    from tellapart.bench.rows import Row

WORKS = {
    "bags": "tellapart.bench.bags",
    "boost": "tellapart.bench.boost",
    "metrics": "tellapart.bench.metrics",
    "rollout": "tellapart.bench.rollout",
    "smile": "tellapart.bench.smile",
}


def run_bench(work: str, repeat: int = 3, only: str = "") -> list[Row]:
    """The rows of ``tellapart bench WORK``: medians of ``repeat`` runs; of works that contain ``only``.

    Raises `UsageError` for an unknown work, for data or tools that are not there, and where ``only`` leaves none.
    """
    if work not in WORKS:
        raise UsageError(f"no benchmark is called '{work}'{nearest(work, WORKS)}")
    rows: list[Row] = importlib.import_module(WORKS[work]).rows(repeat, only)
    return rows
