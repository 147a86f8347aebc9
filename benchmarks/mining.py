"""``benchmarks mining``: bags from features on disk: time, memory, what is found, and 10⁸ pictures from these.

Features are those of ``bench bags --only approximate``, written in files of 100,000 rows in float16. Each size is mined
in a process of its own (`benchmarks.mining_work`), bags of 3, 5 and 7; up to a million pictures a second process
seeks the top 200. What is found is compared with the exact search for 10,000 pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from benchmarks import process
from benchmarks.bags import D
from benchmarks.rows import Row
from tellapart.bags.clusters import KEPT, NEAREST, SAMPLED, STEPS, sizes_for
from tellapart.bags.refinement import ENTRY
from tellapart.bags.row_files import PAIR
from tellapart.errors import UsageError
from tellapart.utils.messages import Progress, say

REPEAT = 1
SIZES = (100_000, 1_000_000, 3_000_000)
SMALLEST = 1000
TOP, TOP_TO = 200, 1_000_000  # sought up to so many pictures: its files are 7 KB a picture
BAGS_GOAL = 95.0  # percent of the neighbours of bags
MEMORY_GB = 4.0
LARGE, WORKERS = 10**8, 64
# Bytes of a picture: features twice, its clusters, found in each of them and joined, two rounds, numbers by place.
ON_DISK = (
    2 * 2 * D
    + 12 * NEAREST
    + (NEAREST + 1) * KEPT * PAIR.itemsize
    + 2 * KEPT * ENTRY.itemsize
    + 4 * 8
    + 6 * PAIR.itemsize
)


def rows(repeat: int, only: str = "", *, to: float | None = None, full: bool = False) -> list[Row]:
    """Rows of every size up to ``to``, and the arithmetic for 10⁸ from the largest.

    Without ``to``: the smallest size, which takes four minutes on two cores, or, with ``full``, all.
    """
    to = to or SIZES[-1 if full else 0]
    if only or repeat != 1:
        raise UsageError("mining is measured once, and whole; type: --repeat 1 --to 1e6, without --only")
    if not SMALLEST <= to <= LARGE:
        raise UsageError(f"--to is {to:g}; expected {SMALLEST:,} to {LARGE:,} pictures")
    sizes = [size for size in SIZES if size <= to] or [int(to)]
    found: list[Row] = []
    last: tuple[int, Mapping[str, float]] | None = None
    with Progress(len(sizes), "mining") as shown:
        for count in sizes:
            say(f"measuring: bags among {count:,} pictures")
            run = _mined(count, 6)
            work, seconds = f"bags of 3, 5 and 7 among {count:,} × 512", run.output["seconds"]
            found.append(Row(f"{work}: time", [sum(seconds.values())], [], 0.0, "s"))
            found += [Row(f"{work}: {stage}", [own], [], 0.0, "s") for stage, own in seconds.items()]
            found.append(Row(f"{work}: peak memory", [run.peak_mb], [1000 * MEMORY_GB], 1.0, "MB"))
            for top, share in run.output["recall"].items():
                found.append(_share(f"{work}: of the nearest {top}, found", share, BAGS_GOAL))
            if count <= TOP_TO:
                wide = _mined(count, TOP)
                found.append(_share(f"top {TOP} among {count:,} × 512, found", wide.output["recall"][str(TOP)], 0.0))
                found.append(
                    Row(f"top {TOP} among {count:,} × 512: time", [sum(wide.output["seconds"].values())], [], 0.0, "s")
                )
            last = count, seconds
            shown.advance()
    assert last is not None
    return found + for_large(*last)


def _mined(count: int, k: int) -> process.CompletedRun:
    return process.run([sys.executable, "-m", "benchmarks.mining_work", str(count), str(k), str(MEMORY_GB)])


def _share(work: str, share: float, goal: float) -> Row:
    """A share in percent beside its goal; the ratio is above 1 where it is reached."""
    # A row's ratio is theirs over ours: what is missing against what may be missing.
    missing = [max(100 - 100 * share, 1e-3)]
    return Row(f"{work} all but", missing, [100 - goal] if goal else [], 1.0 if goal else 0.0, "%")


def for_large(count: int, seconds: Mapping[str, float]) -> list[Row]:
    """What 10⁸ pictures would take, from ``count``: all grows with the pictures, two stages with the clusters too, and
    the search with how many pictures a cluster has.

    How fast numbers are multiplied is that of the search of clusters, where it decides. Rounds of refinement take the
    same time for each picture, as many of them as at ``count``.
    """
    times, clusters, before = LARGE / count, *(sizes_for(n, D, 6, MEMORY_GB).clusters for n in (LARGE, count))
    products = before * (NEAREST * count / before) ** 2 * D
    rate = products / seconds["found"]
    grown = {stage: own * times for stage, own in seconds.items()}
    grown["found"] *= times * before / clusters
    grown["order"] += 2 * LARGE * clusters * D / rate  # every picture with every centre
    grown["centroids"] = seconds["centroids"] + 2 * STEPS * SAMPLED * clusters**2 * D / rate
    hours = {stage: own / 3600 for stage, own in grown.items()}
    alone = sum(own for stage, own in hours.items() if stage in ("centroids", "bags"))
    shared = sum(hours.values()) - alone
    work = f"{LARGE:,} × 512, from {count:,}"
    return [
        *(Row(f"{work}: {stage}", [own], [], 0.0, "h") for stage, own in hours.items()),
        Row(f"{work}: on this machine", [alone + shared], [], 0.0, "h"),
        Row(f"{work}: with {WORKERS} such machines for assigning, searching, joining and refining",
            [alone + shared / WORKERS], [], 0.0, "h"),
        Row(f"{work}: features in float16, and files on the way", [LARGE * ON_DISK / 1e9], [], 0.0,
            "GB"),
    ]  # fmt: skip
