"""``benchmarks bags``: compares our look-alike search with FAISS's flat index, and measures its scaling and bag mining.

Features are synthetic: a few hundred thousand points around many centres, like features of pictures of similar things.
Each search runs in a separate process, so that its peak memory can be measured. ``--only growth``, ``--only
approximate`` or a number of pictures (``--only 30,000``) selects rows. Without ``--only`` and ``--full``, only rows
that take at most five minutes are measured.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from benchmarks import process
from benchmarks.rows import Row
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

Found = TypeVar("Found")

COCO, D, TOP = 113_287, 512, 200  # COCO's training set in paper 2's split, CLIP's width, the paper's neighbours
GROWTH = (10_000, 30_000, 100_000, 300_000)
SHORT = (10_000, 30_000)  # sizes measured by default
APPROXIMATE = (100_000, 1_000_000)
SEARCHED = 50_000  # maximum number of queries of the approximate search; its time covers all of them
SAMPLE = 2000  # queries for which the approximate search is compared with exact neighbours
SLOWER = 1.3  # maximum ratio of our time to FAISS's
MEMORY_MB, BAGS_SECONDS = 2048.0, 60.0
BLOCK = 16384  # features made at a time
SIZES = (2, 3, 5, 7, 10, 15, 20)
CHECKED = 200  # number of pictures whose neighbours are compared with those of FAISS
SHARED = 0.999  # fraction of neighbours that both must find; ties in float32 may differ


def rows(repeat: int, only: str = "", *, full: bool = False) -> list[Row]:
    """Measures the rows whose name contains ``only``. Goals are ratios: at least 1/1.3 = 0.77 of FAISS's speed.

    Without ``only`` and ``full``, measures the rows that take at most five minutes on two cores: COCO's pictures once
    (200 s of CPU time for both sides), and the growth up to 30,000 pictures (22 s per run).
    """
    if importlib.util.find_spec("faiss") is None:
        raise UsageError("FAISS, the reference, is not installed; run: pip install 'tellapart[faiss]'")
    chosen = workloads(repeat, only)
    if not only and not full:
        chosen = workloads(1, f"{COCO:,}") | {work: chosen[work] for n in SHORT for work in workloads(repeat, f"{n:,}")}
        say("only the short rows; for all rows (about 35 minutes), add --full")
    threads = os.environ.get("OMP_NUM_THREADS")
    say(f"threads: {threads or f'all ({os.cpu_count()}); set OMP_NUM_THREADS=1 for one'}")
    found: list[Row] = []
    with Progress(len(chosen), "measuring") as progress:
        for work, make in chosen.items():
            say(f"measuring: {work}")
            found += make(work)
            progress.advance()
    return found


def workloads(repeat: int, only: str = "") -> dict[str, Callable[[str], list[Row]]]:
    """Returns the workloads whose name contains ``only``, in the order in which they are measured."""
    search = f"exact top {TOP}, {{:,}} × {D}: time"
    makers: dict[str, Callable[[str], list[Row]]] = {
        search.format(COCO): partial(_against_faiss, n=COCO, repeat=repeat, more=True),
        **{f"growth, {search.format(n)}": partial(_against_faiss, n=n, repeat=repeat) for n in GROWTH},
        **{f"approximate top {TOP}, {n:,} × {D}": partial(_approximate, n=n, repeat=repeat) for n in APPROXIMATE},
    }
    chosen = {work: make for work, make in makers.items() if only.lower() in work.lower()}
    if not chosen:
        raise UsageError(f"no row contains '{only}'; available: {'; '.join(makers)}")
    return chosen


def _against_faiss(work: str, n: int, repeat: int, more: bool = False) -> list[Row]:
    """Times our search and FAISS's flat index alternately, and compares their neighbours. ``more``: whether to also
    measure memory and our bag mining.
    """
    ours: list[process.CompletedRun] = []
    theirs: list[process.CompletedRun] = []
    for number in range(repeat):
        for search, done in (("ours", ours), ("faiss", theirs))[:: -1 if number % 2 else 1]:
            done.append(_run(search, n))
    _check(work, ours[0].output["rows"], theirs[0].output["rows"])
    ours_R, theirs_R = ([float(run.output["seconds"]) for run in runs] for runs in (ours, theirs))
    found = [Row(work, ours_R, theirs_R, round(1 / SLOWER, 2) if more else 0.0, "s")]  # the curve has no goal
    ours_R, theirs_R = ([float(run.output["cpu_seconds"]) for run in runs] for runs in (ours, theirs))
    found.append(Row(f"{work} of the processor", ours_R, theirs_R, 0.0, "s"))  # unaffected by other processes
    if more:
        peak_R = [run.peak_mb for run in ours]
        found.append(Row(work.replace("time", "peak memory against 2 GiB"), peak_R, [MEMORY_MB], 1.0, "MB"))
        bags_R = [float(run.output["bags_seconds"]) for run in ours]
        sizes = ", ".join(map(str, SIZES))
        found.append(Row(f"bags of {sizes} from these neighbours, against a minute", bags_R, [BAGS_SECONDS], 1.0, "s"))
    return found


def _approximate(work: str, n: int, repeat: int) -> list[Row]:
    """Measures the time and recall of our approximate search with FAISS's cells. An exact search would take hours, so
    the reference is extrapolated from FAISS's flat index on a sample of the pictures.
    """
    ours = [_run("approximate", n) for _ in range(repeat)]
    flat = [_run("flat-sample", n) for _ in range(repeat)]
    sample, queries = min(SAMPLE, n), min(SEARCHED, n)
    flat_R = [run.output["seconds"] * n / sample for run in flat]

    def of(key: str) -> list[float]:
        return [float(run.output[key]) for run in ours]

    against = f"{work}: all of the time, against FAISS's flat index ({sample:,} queries, times {n / sample:g})"
    return [
        Row(against, of("seconds"), flat_R, 0.0, "s"),
        Row(f"{work}: to build the index", of("build_seconds"), [], 0.0, "s"),
        Row(f"{work}: to search ({queries:,} queries, times {n / queries:g})", of("search_seconds"), [], 0.0, "s"),
        Row(f"{work}: peak memory", [run.peak_mb for run in ours], [], 0.0, "MB"),
        Row(f"{work}: recall@{TOP} ({sample:,} queries)", [100 * found for found in of("recall")], [], 0.0, "%"),
    ]


def _run(search: str, n: int) -> process.CompletedRun:
    return process.run([sys.executable, "-m", "benchmarks.bags", search, str(n)])


def _check(work: str, ours: list[list[int]], theirs: list[list[int]]) -> None:
    shared = np.mean([len(set(a) & set(b)) / max(1, len(a)) for a, b in zip(ours, theirs, strict=True)])
    if shared < SHARED:
        raise TellapartError(
            f"{work}: the two searches share {shared:.4f} of the neighbours; expected at least {SHARED}"
        )


def features(n: int, uneven: bool = False) -> np.ndarray:
    """Returns n unit vectors around n/40 centres, N×D in float32. For ``uneven``, see `feature_blocks`."""
    features_ND = np.empty((n, D), np.float32)
    start = 0
    for part in feature_blocks(n, uneven):
        features_ND[start : (start := start + len(part))] = part
    return features_ND


def feature_blocks(n: int, uneven: bool = False) -> Iterator[np.ndarray]:
    """Yields the same features as `features`, in blocks of rows.

    uneven: whether the i-th direction has 1/i of the first direction's variance, as in real encoders. This affects the
        recall of an approximate search but does not affect an exact search.
    """
    rng = np.random.default_rng(0)
    centre_CD = rng.standard_normal((max(1, n // 40), D), dtype=np.float32)
    for start in range(0, n, BLOCK):
        part = rng.standard_normal((min(BLOCK, n - start), D), dtype=np.float32)
        part += centre_CD[rng.integers(0, len(centre_CD), len(part))]
        if uneven:
            part *= np.arange(1, D + 1, dtype=np.float32) ** -0.5
        part /= np.linalg.norm(part, axis=1, keepdims=True)
        yield part


def run_search(search: str, n: int) -> dict[str, Any]:
    """Runs one search in this process. Does not time the generation of the features."""
    features_ND = features(n, uneven=search in ("approximate", "flat-sample"))
    return SEARCHES[search](features_ND, min(TOP, n - 1))


def _ours(features_ND: np.ndarray, k: int) -> dict[str, Any]:
    """Runs our exact search, then mines bags of all sizes."""
    import torch  # noqa: F401  (loading it is not timed)

    from tellapart.bags.training_bags import training_bags
    from tellapart.features.all_neighbours import nearest_neighbours

    near, took = _timed(lambda: nearest_neighbours(features_ND, k, approximate=False, progress=False))
    _, bags_took = _timed(lambda: [training_bags(near.rows_NK, size) for size in SIZES])
    rows = near.rows_NK[_compared_rows(features_ND)].tolist()
    return {**took, "rows": rows, "bags_seconds": bags_took["seconds"]}


def _faiss(features_ND: np.ndarray, k: int) -> dict[str, Any]:
    """Searches FAISS's flat index, without each picture's own row."""
    rows_NK, took = _flat(features_ND, features_ND, k)
    rows = [[row for row in rows_NK[i].tolist() if row != i][:k] for i in _compared_rows(features_ND).tolist()]
    return {**took, "rows": rows}


def _flat_sample(features_ND: np.ndarray, k: int) -> dict[str, Any]:
    """Searches FAISS's flat index for a sample of queries."""
    sample_Q = np.random.default_rng(1).choice(len(features_ND), min(SAMPLE, len(features_ND)), replace=False)
    return _flat(features_ND, features_ND[sample_Q], k)[1]


def _flat(features_ND: np.ndarray, query_QD: np.ndarray, k: int) -> tuple[np.ndarray, dict[str, float]]:
    import faiss

    def search() -> np.ndarray:
        index = faiss.IndexFlatIP(features_ND.shape[1])
        index.add(features_ND)
        return np.asarray(index.search(query_QD, k + 1)[1])

    return _timed(search)


def _timed(work: Callable[[], Found]) -> tuple[Found, dict[str, float]]:
    """Returns the result, the wall-clock seconds, and the CPU seconds of all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}


def _approximate_search(features_ND: np.ndarray, k: int) -> dict[str, Any]:
    """Runs our approximate search and measures what fraction of the exact neighbours it finds."""
    import faiss  # noqa: F401
    import torch  # noqa: F401

    from tellapart.features.approximate import measured_search

    near, build_seconds, search_seconds = measured_search(features_ND, k, progress=False, queries=SEARCHED)
    search_seconds *= max(1.0, len(features_ND) / SEARCHED)
    return {
        "seconds": build_seconds + search_seconds,
        "build_seconds": build_seconds,
        "search_seconds": search_seconds,
        "recall": near.recall,
    }


def _compared_rows(features_ND: np.ndarray) -> np.ndarray:
    """Returns the rows of the pictures whose neighbours are compared."""
    return np.linspace(0, len(features_ND) - 1, min(CHECKED, len(features_ND)), dtype=int)


SEARCHES: dict[str, Callable[[np.ndarray, int], dict[str, Any]]] = {
    "ours": _ours,
    "faiss": _faiss,
    "flat-sample": _flat_sample,
    "approximate": _approximate_search,
}

if __name__ == "__main__":
    print(json.dumps(run_search(sys.argv[1], int(sys.argv[2]))))
