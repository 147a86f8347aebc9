"""One size of ``benchmarks mining``, in a process of its own: prints seconds by stage and recalls as JSON.

python -m benchmarks.mining_work PICTURES NEIGHBOURS MEMORY_GB
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 100_000  # of a file
QUERIES = 10_000


def measure(count: int, k: int, memory_gb: float, queries: int = QUERIES) -> dict[str, Any]:
    """Seconds by stage, ``bags`` among them, and the share of the exact nearest that was found, by how many."""
    from benchmarks.bags import D
    from tellapart.bags.clusters import sizes_for
    from tellapart.bags.curation import curate, recall
    from tellapart.bags.large import LargeSearch
    from tellapart.bags.shards import FeatureShards

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "features"
        write_features(folder, count)
        features = FeatureShards.open(folder)
        search = LargeSearch(Path(made) / "work", features, k, sizes_for(count, D, k, memory_gb))
        seconds = search.run(progress=False)
        tops: tuple[int, ...] = (k,)
        if k == 6:  # bags of 3, 5 and 7
            started, tops = time.perf_counter(), (2, 4, 6)
            for top in tops:
                curate(search, top + 1)
            seconds["bags"] = time.perf_counter() - started
        found = recall(search, tops, queries, progress=False)
        return {"seconds": seconds, "recall": dict(zip(map(str, tops), found, strict=True))}


def write_features(folder: Path, count: int) -> None:
    """Files of `ROWS` rows in float16."""
    from benchmarks.bags import D, feature_blocks

    folder.mkdir()
    buffer_ND, held, number = np.empty((ROWS, D), np.float16), 0, 0
    for part in feature_blocks(count, uneven=True):
        while len(part):
            taken = part[: ROWS - held]
            buffer_ND[held : held + len(taken)], held, part = taken, held + len(taken), part[len(taken) :]
            if held == ROWS:
                np.save(folder / f"{number:04}.npy", buffer_ND)
                held, number = 0, number + 1
    if held:
        np.save(folder / f"{number:04}.npy", buffer_ND[:held])


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
