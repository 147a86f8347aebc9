"""``tellapart bench bags``: the search for look-alikes against FAISS's flat index, how it grows, and all bags.

Features are made up: a few hundred thousand points around many centres, as pictures of the same things lie. Everything
runs in a process of its own, so that its peak memory is its own. ``--only growth`` picks rows.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tellapart.bench import process
from tellapart.bench.rows import Row
from tellapart.errors import TellapartError, UsageError
from tellapart.messages import say
from tellapart.progress import Progress

COCO, D, TOP = 113_287, 512, 200  # COCO's training set in paper 2's split, CLIP's width, the paper's neighbours
GROWTH = (10_000, 30_000, 100_000, 300_000)
MILLION = 1_000_000
SLOWER = 1.3  # times FAISS that we may take
MEMORY_MB, BAGS_SECONDS = 2048.0, 60.0
SIZES = (2, 3, 5, 7, 10, 15, 20)
CHECKED = 200  # pictures whose neighbours are compared with FAISS's
SHARED = 0.999  # of their neighbours that both must find: equal but for cosines that float32 cannot tell apart


def rows(repeat: int, only: str = "") -> list[Row]:
    """Rows whose work contains ``only``. Goals are ratios: at least 0.77, 1/1.3, of FAISS's speed."""
    if importlib.util.find_spec("faiss") is None:
        raise UsageError("FAISS, which is measured against, is not installed; type: pip install 'tellapart[faiss]'")
    search = f"exact top {TOP}, {{:,}} × {D}: time"
    makers: dict[str, Callable[[str], list[Row]]] = {
        search.format(COCO): partial(_against_faiss, n=COCO, repeat=repeat, more=True),
        **{f"growth, {search.format(n)}": partial(_against_faiss, n=n, repeat=repeat) for n in GROWTH},
        f"approximate top {TOP}, {MILLION:,} × {D}: time against exact": partial(_approximate, n=MILLION),
    }
    chosen = {work: make for work, make in makers.items() if only.lower() in work.lower()}
    if not chosen:
        raise UsageError(f"no work contains '{only}'; known: {'; '.join(makers)}")
    found: list[Row] = []
    with Progress(len(chosen), "measuring") as progress:
        for work, make in chosen.items():
            say(f"measuring: {work}")
            found += make(work)
            progress.advance()
    return found


def _against_faiss(work: str, n: int, repeat: int, more: bool = False) -> list[Row]:
    """Ours and FAISS's flat index in turns, with the same neighbours found; ``more``: memory, and bags of ours."""
    ours: list[process.Done] = []
    theirs: list[process.Done] = []
    for number in range(repeat):
        for way, done in (("ours", ours), ("faiss", theirs))[:: -1 if number % 2 else 1]:
            done.append(_run(way, n))
    _check(work, ours[0].printed["rows"], theirs[0].printed["rows"])
    ours_R, theirs_R = ([float(run.printed["seconds"]) for run in runs] for runs in (ours, theirs))
    found = [Row(work, ours_R, theirs_R, round(1 / SLOWER, 2) if more else 0.0, "s")]  # the curve has no goal
    if more:
        peak_R = [run.peak_mb for run in ours]
        found.append(Row(work.replace("time", "peak memory against 2 GiB"), peak_R, [MEMORY_MB], 1.0, "MB"))
        bags_R = [float(run.printed["bags_seconds"]) for run in ours]
        sizes = ", ".join(map(str, SIZES))
        found.append(Row(f"bags of {sizes} from these neighbours, against a minute", bags_R, [BAGS_SECONDS], 1.0, "s"))
    return found


def _approximate(work: str, n: int) -> list[Row]:
    """FAISS's cells against our exact search; what is lost is told, for it is no ratio. Once each: these are long."""
    ours, exact = _run("approximate", n), _run("ours", n)
    say(f"{work}: finds {100 * ours.printed['recall']:.1f} % of the exact neighbours; peak {ours.peak_mb:,.0f} MB")
    return [Row(work, [ours.printed["seconds"]], [exact.printed["seconds"]], 1.0, "s")]


def _run(way: str, n: int) -> process.Done:
    return process.run([sys.executable, "-m", "tellapart.bench.bags", way, str(n)])


def _check(work: str, ours: list[list[int]], theirs: list[list[int]]) -> None:
    shared = np.mean([len(set(a) & set(b)) / max(1, len(a)) for a, b in zip(ours, theirs, strict=True)])
    if shared < SHARED:
        raise TellapartError(f"{work}: the two ways share {shared:.4f} of the neighbours, at least {SHARED} expected")


def features(n: int) -> np.ndarray:
    """n points of length 1 around n/40 centres, N×D float32."""
    rng = np.random.default_rng(0)
    centre_CD = rng.standard_normal((max(1, n // 40), D), dtype=np.float32)
    features_ND = np.empty((n, D), np.float32)
    for start in range(0, n, 16384):
        part = features_ND[start : start + 16384]
        rng.standard_normal(part.shape, dtype=np.float32, out=part)
        part += centre_CD[rng.integers(0, len(centre_CD), len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return features_ND


def once(way: str, n: int) -> dict[str, Any]:
    """One run, in this process: the seconds of the search alone, and the first neighbours it found."""
    features_ND = features(n)
    k = min(TOP, n - 1)
    checked = np.linspace(0, n - 1, min(CHECKED, n), dtype=int)
    start = time.perf_counter()
    if way == "faiss":
        import faiss

        start = time.perf_counter()
        index = faiss.IndexFlatIP(D)
        index.add(features_ND)
        rows_NK = index.search(features_ND, k + 1)[1]
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "rows": [[r for r in rows_NK[i].tolist() if r != i][:k] for i in checked.tolist()]}
    import torch  # noqa: F401  (loading it is not searching)

    from tellapart.bags import nearest_neighbours, training_bags

    start = time.perf_counter()
    near = nearest_neighbours(features_ND, k, approximate=way == "approximate", progress=False)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    for size in SIZES:
        training_bags(near.rows_NK, size)
    bags_seconds = time.perf_counter() - start
    found = near.rows_NK[checked].tolist()
    return {"seconds": seconds, "rows": found, "bags_seconds": bags_seconds, "recall": near.recall}


if __name__ == "__main__":
    print(json.dumps(once(sys.argv[1], int(sys.argv[2]))))
