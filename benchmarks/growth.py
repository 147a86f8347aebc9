"""``benchmarks growth``: measures how the time and memory of evaluation, captioning and mining grow with the data.

Inputs are synthetic (`benchmarks.growth_data`). Each size runs in a separate process (`benchmarks.growth_work`), so
that its peak memory can be measured. Memory includes the generation of the inputs, time does not.
"""

from __future__ import annotations

import math
import shutil
import statistics
import sys
import tempfile

from benchmarks import process
from benchmarks.rows import Row
from tellapart.errors import UsageError, nearest
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

FIRST = 1000
LARGEST = 10**6
GOAL_ITEMS, GOAL_MB = 100_000, 2048.0  # memory limit for evaluating this many captions
ROW_BYTES = 12_288  # size of a picture's features in the store: 16 cells of 192 numbers
LINEAR = 1.15  # maximum growth exponent of the time, from 10⁴ on, that counts as linear
WORKS = {"eval": "captions", "caption": "pictures", "bags": "pictures"}  # and their items


def rows(repeat: int, only: str = "", *, what: str = "eval", to: float = 1e5) -> list[Row]:
    """Measures time and peak memory of ``what`` for 1,000 items, 10,000 items, … up to ``to``."""
    if only:
        raise UsageError("--only has no effect on growth; use --what eval --to 1e5")
    if what not in WORKS:
        raise UsageError(f"--what is '{what}'{nearest(what, WORKS)}; expected one of {', '.join(WORKS)}")
    if not FIRST <= to <= LARGEST:
        raise UsageError(f"--to is {to:g}; expected {FIRST:,} to {LARGEST:,} items")
    sizes = [10**power for power in range(3, int(math.log10(to) + 1e-9) + 1)]
    seconds: dict[int, list[float]] = {}
    peaks: dict[int, list[float]] = {}
    if what == "caption":
        _check_disk(sizes[-1])
    with Progress(sum(sizes) * repeat, f"growth of {what}") as shown:
        for count in sizes:
            say(f"measuring: {what} of {count:,} {WORKS[what]}")
            for _ in range(repeat):
                run = process.run([sys.executable, "-m", "benchmarks.growth_work", what, str(count)])
                seconds.setdefault(count, []).append(float(run.output["seconds"]))
                peaks.setdefault(count, []).append(run.peak_mb)
                shown.advance(count)
    return [row for count in sizes for row in _rows(what, count, seconds, peaks)]


def _check_disk(count: int) -> None:
    """Raises `UsageError` if the temporary folder lacks space for the features of ``count`` pictures."""
    folder, needed = tempfile.gettempdir(), 1.1 * count * ROW_BYTES
    if (free := shutil.disk_usage(folder).free) < needed:
        raise UsageError(
            f"the features of {count:,} pictures need {needed / 1e9:.1f} GB in {folder}, which has "
            f"{free / 1e9:.1f} GB free; set TMPDIR to a folder on another disk, or lower --to"
        )


def _rows(what: str, count: int, seconds: dict[int, list[float]], peaks: dict[int, list[float]]) -> list[Row]:
    """Returns the rows for one size: time, memory and, from 10⁴ items on, the exponent with which the time grows."""
    work = f"{what} of {count:,} {WORKS[what]}"
    goal = what == "eval" and count == GOAL_ITEMS
    found = [Row(f"{work}: time", seconds[count], [], 0.0, "s")]
    found.append(
        Row(f"{work}: peak memory{', against 2 GiB' if goal else ''}", peaks[count], [GOAL_MB] if goal else [],
            1.0 if goal else 0.0, "MB")
    )  # fmt: skip
    if (before := seconds.get(count // 10)) is not None:
        exponent = [math.log10(statistics.median(seconds[count]) / statistics.median(before))]
        label = f"{work}: exponent of the time since {count // 10:,}{f', against {LINEAR}' if goal else ''}"
        found.append(Row(label, exponent, [LINEAR] if goal else [], 1.0 if goal else 0.0, ""))
    return found
