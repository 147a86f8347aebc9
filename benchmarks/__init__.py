"""``benchmarks``: ours and a reference implementation on the same work, timed alternately in one run."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from tellapart.errors import UsageError, nearest

if TYPE_CHECKING:
    from benchmarks.rows import Row

REPEAT = 3  # runs of each side, unless the benchmark has a number of its own
BENCHMARKS = {
    "bags": "benchmarks.bags",
    "caption": "benchmarks.caption",
    "growth": "benchmarks.growth",
    "metrics": "benchmarks.metrics",
    "rollout": "benchmarks.rollout",
    "smile": "benchmarks.smile",
}


def run_bench(work: str, repeat: int | None = None, only: str = "", **options: Any) -> list[Row]:
    """The rows of ``python -m benchmarks WORK`` whose work contains ``only``, with ``repeat`` runs each (`REPEAT`).

    ``options``: further keywords of the benchmark's ``rows``. Raises `UsageError` for an unknown benchmark, for an
    option that it does not have, for missing data or tools, and where ``only`` leaves no row.
    """
    if work not in BENCHMARKS:
        raise UsageError(f"no benchmark is called '{work}'{nearest(work, BENCHMARKS)}")
    module = importlib.import_module(BENCHMARKS[work])
    run, repeat = module.rows, repeat or getattr(module, "REPEAT", REPEAT)
    for name in options:
        if name not in inspect.signature(run).parameters:
            raise UsageError(f"{work} has no --{name}; leave it out")
    rows: list[Row] = run(repeat, only, **options)
    return rows
