"""``benchmarks jobs``: what sharing the work costs, and how it scales.

The embedded captioner of `scenes` captions PNG files in tars. Whole commands are timed, from the start of Python to the
joined file, so Ray's own start counts. A thousand workers are simulated from the times of shards that were measured.
"""

from __future__ import annotations

import heapq
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rows import Row
from tellapart.errors import TellapartError, UsageError
from tellapart.utils.messages import Progress, say

PICTURES = 40_000  # minutes of work: Ray and the workers take seconds to start, whatever there is to do
EACH = 1000  # pictures in a tar
OVERHEAD = 1.10  # against one plain process
SIMULATED = (10, 100, 1000)
SHARDS_EACH = 100  # shards for each simulated worker
STRAGGLERS, SLOWER = 0.01, 5.0  # on top of what was measured: one machine in a hundred is so much slower


def rows(repeat: int, only: str = "", *, pictures: int = PICTURES) -> list[Row]:
    """One plain process against one worker and two, on the same cores; then the simulation."""
    if only:
        raise UsageError("--only has no effect on jobs; leave it out")
    if pictures < 2 * EACH:
        raise UsageError(f"--pictures {pictures}: expected at least {2 * EACH:,}, two shards")
    cores = os.cpu_count() or 1
    plain: list[float] = []
    one: list[float] = []
    alone: list[float] = []
    two: list[float] = []
    shards: list[float] = []
    outside: list[float] = []
    with TemporaryDirectory(prefix="tellapart-bench-") as folder:
        data = Path(folder) / "data"
        _write(data, pictures)
        with Progress(4 * repeat, "commands") as shown:
            for number in range(repeat):
                out = Path(folder) / f"{number}"
                plain.append(_timed(data, out / "plain.jsonl", cores))
                shown.advance()
                one.append(_timed(data, out / "one.jsonl", cores, "--workers", 1, "--cpus-per-worker", cores))
                shown.advance()
                alone.append(_timed(data, out / "alone.jsonl", 1, "--workers", 1, "--cpus-per-worker", 1))
                shown.advance()
                two.append(_timed(data, out / "two.jsonl", 1, "--workers", 2, "--cpus-per-worker", 1))
                shown.advance()
                _check([out / f"{name}.jsonl" for name in ("plain", "one", "alone", "two")])
                shards += _shard_seconds(out / "alone.jsonl.job")
                outside.append(one[-1] - sum(_shard_seconds(out / "one.jsonl.job")))
    middle = statistics.median(shards)
    say(f"a shard of {EACH}: median {middle:.2f} s, {min(shards):.2f} to {max(shards):.2f} s ({len(shards)} measured)")
    found = [
        Row(f"caption {pictures:,} pictures: 1 worker against a plain process, {cores} cores", one, plain,
            1 / OVERHEAD, "s"),
        Row("of that outside the shards: Python, Ray and the worker start, results are joined", outside, [], 0.0, "s"),
        Row(f"caption {pictures:,} pictures: 2 workers against 1 worker, 1 core each", two, alone, 0.0, "s"),
    ]  # fmt: skip
    for workers in SIMULATED:
        even = efficiency(shards, workers, 0.0)
        slow = efficiency(shards, workers, STRAGGLERS)
        label = f"simulated: {workers:,} workers, {SHARDS_EACH} shards each, efficiency"
        found.append(Row(label, [100 * even], [], 0.0, "%"))
        found.append(
            Row(f"{label}, {STRAGGLERS:.0%} of the workers {SLOWER:g} times slower", [100 * slow], [], 0.0, "%")
        )
    return found


def efficiency(shards: Sequence[float], workers: int, stragglers: float, seed: int = 0) -> float:
    """Work done over workers × time until the last shard is done, as the driver gives shards to whoever is free.

    ``shards``: seconds that were measured, drawn with replacement. ``stragglers``: the part of the workers that are
    `SLOWER`; they count with the work that they could do.
    """
    draw = random.Random(seed)
    speeds = [1 / SLOWER if place < stragglers * workers else 1.0 for place in range(workers)]
    free = [(0.0, place) for place in range(workers)]
    last = done = 0.0
    for _ in range(SHARDS_EACH * workers):
        at, place = heapq.heappop(free)
        seconds = draw.choice(shards)
        done += seconds
        end = at + seconds / speeds[place]
        last = max(last, end)
        heapq.heappush(free, (end, place))
    return done / (sum(speeds) * last)


def _write(folder: Path, pictures: int) -> None:
    """Pictures of `scenes` as PNG, in tars; a few hundred different ones, over and over."""
    from tellapart.data import open_data

    folder.mkdir()
    encoded = []
    for item in open_data(f"scenes:plain?n={min(pictures, 400)}"):
        made = io.BytesIO()
        item.picture.image().save(made, "PNG")
        encoded.append(made.getvalue())
    for shard in range(0, pictures, EACH):
        with tarfile.open(folder / f"{shard // EACH:05d}.tar", "w") as tar:
            for number in range(shard, min(shard + EACH, pictures)):
                member = tarfile.TarInfo(f"{number:08d}.png")
                member.size = len(encoded[number % len(encoded)])
                tar.addfile(member, io.BytesIO(encoded[number % len(encoded)]))


def _timed(data: Path, out: Path, threads: int, *options: object) -> float:
    """Seconds of a whole command."""
    command = [sys.executable, "-m", "tellapart", "--quiet", "caption", "scenes", str(data), "-o", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--beams", "1", *map(str, options)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise TellapartError(f"{' '.join(done.args)} failed: {done.stderr.strip()[-300:]}")
    return time.monotonic() - started


def _check(files: Sequence[Path]) -> None:
    if len({file.read_bytes() for file in files}) != 1:
        raise TellapartError("the captions depend on the number of workers, so their times cannot be compared")


def _shard_seconds(job: Path) -> list[float]:
    return [float(json.loads(file.read_text())["seconds"]) for file in sorted(job.glob("parts-*/*.summary.json"))]
