"""Times our implementations and reference implementations on the same work, alternately in one run."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from tellapart.errors import UsageError, nearest

if TYPE_CHECKING:
    from benchmarks.rows import Row

REPEAT = 3  # default number of runs per side
BENCHMARKS = {
    "bags": "benchmarks.bags",
    "caption": "benchmarks.caption",
    "growth": "benchmarks.growth",
    "metrics": "benchmarks.metrics",
    "rollout": "benchmarks.rollout",
    "smile": "benchmarks.smile",
}


def run_bench(work: str, repeat: int | None = None, only: str = "", **options: Any) -> list[Row]:
    """Runs ``python -m benchmarks WORK`` for rows whose name contains ``only``, with ``repeat`` runs each.

    ``options``: additional keyword arguments for the benchmark's ``rows``. Raises `UsageError` if the benchmark is
    unknown or lacks one of the options, if data or tools are missing, or if ``only`` matches no row.
    """
    if work not in BENCHMARKS:
        raise UsageError(f"unknown benchmark '{work}'{nearest(work, BENCHMARKS)}")
    module = importlib.import_module(BENCHMARKS[work])
    run, repeat = module.rows, repeat or getattr(module, "REPEAT", REPEAT)
    for name in options:
        if name not in inspect.signature(run).parameters:
            raise UsageError(f"{work} has no option --{name}; remove it")
    rows: list[Row] = run(repeat, only, **options)
    return rows
