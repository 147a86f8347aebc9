"""``benchmarks boost``: requests a second against a server that answers in 200 ms, and memory over 100,000 items.

The server runs in a process of its own on this machine. Timed is the whole path of a request: the prompt, HTTP,
the checks of the answer, and the ledger with its flush to disk. ``--only memory`` picks rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

from benchmarks import process
from benchmarks.rows import Row
from tellapart.boost.types import Answer, Request
from tellapart.data.pictures import BytesPicture
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import say

ANSWER_SECONDS, IN_FLIGHT = 0.2, 16
REQUESTS, ONE_BY_ONE = 1600, 50
BOUND, GOAL = IN_FLIGHT / ANSWER_SECONDS, 70.0  # requests a second: the bound, and the goal
FEW, MANY = 10_000, 100_000
GROWTH = 1.1  # of memory, from few items to many

THROUGHPUT = f"1,000 requests, answered in 200 ms, {IN_FLIGHT} in flight: time against the bound of {BOUND:.0f}/s"
SEQUENCE = f"1,000 requests, answered in 200 ms: {IN_FLIGHT} in flight against one at a time"
MEMORY = f"memory at {MANY:,} items against that at {FEW:,}"


def rows(repeat: int, only: str = "") -> list[Row]:
    """Rows whose work contains ``only``. Memory is measured once: it takes minutes, and varies little."""
    chosen = [work for work in (THROUGHPUT, SEQUENCE, MEMORY) if only.lower() in work.lower()]
    if not chosen:
        raise UsageError(f"no row contains '{only}'; known: {'; '.join((THROUGHPUT, SEQUENCE, MEMORY))}")
    found = []
    if THROUGHPUT in chosen or SEQUENCE in chosen:
        with slow_server() as url:
            say(f"measuring: {THROUGHPUT}")
            ours = [1000 * _run_job("requests", url, REQUESTS, IN_FLIGHT)["seconds"] / REQUESTS for _ in range(repeat)]
            if THROUGHPUT in chosen:
                found.append(Row(THROUGHPUT, ours, [1000 / BOUND], round(GOAL / BOUND, 3), "s"))
            if SEQUENCE in chosen:
                say(f"measuring: {SEQUENCE}")
                alone = 1000 * _run_job("requests", url, ONE_BY_ONE, 1)["seconds"] / ONE_BY_ONE
                found.append(Row(SEQUENCE, ours, [alone], GOAL * ANSWER_SECONDS, "s"))
    if MEMORY in chosen:
        say(f"measuring: {MEMORY}")
        memory = _run_job("memory", "", MANY, IN_FLIGHT)["mb"]
        say("; ".join(f"{count} items: {mb:.0f} MB" for count, mb in memory.items()))
        found.append(Row(MEMORY, [memory[str(MANY)]], [memory[str(FEW)]], round(1 / GROWTH, 2), "MB"))
    return found


@contextmanager
def slow_server(seconds: float = ANSWER_SECONDS) -> Iterator[str]:
    """The address of a server that answers after ``seconds``."""
    command = [sys.executable, "-m", "benchmarks.slow_server", str(seconds)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    finally:
        server.kill()
        server.wait()


def _run_job(mode: str, url: str, n: int, in_flight: int) -> dict[str, Any]:
    printed: dict[str, Any] = process.run(
        [sys.executable, "-m", "benchmarks.boost", mode, url, str(n), str(in_flight)]
    ).output
    return printed


class GeneratedItems(Sequence[Item]):
    """n items that are made on access: a data set that takes no memory."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return [self[place] for place in range(self.n)[index]]
        if not 0 <= index < self.n:
            raise IndexError(index)
        references = (f"a dog with the ball number {index}", "the dog is on the lawn", "there is a dog with a red ball")
        return Item(str(index), BytesPicture(f"picture {index}".encode(), str(index)), references)


class InstantBackend:
    """A backend that answers without a server."""

    name = "at-once"

    def complete(self, request: Request) -> Answer:
        number = hash(request.messages) % 10**9
        return Answer(f"A dog with a red ball is on the lawn, and {number} is its number.", 100, 18)


def measure_job(mode: str, url: str, n: int, in_flight: int) -> dict[str, Any]:
    """One run, in this process: seconds of n requests, or memory by the number of items done."""
    from tellapart.boost.backends import open_backend
    from tellapart.boost.job import BoostJob
    from tellapart.boost.ledger import Ledger
    from tellapart.boost.stages import stages

    backend = open_backend(f"openai:m@{url}") if mode == "requests" else InstantBackend()
    memory: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        job = BoostJob(stages(["blend"], backend, None), ledger, in_flight)
        start = time.perf_counter()
        for done, boosted in enumerate(job.run(iter(GeneratedItems(n))), start=1):
            if "blend" not in boosted.texts:
                raise UsageError(f"the benchmark's own answer was bad: {boosted.bad}")
            if mode == "memory" and done % FEW == 0:
                memory[done] = resident_mb()
        return {"seconds": time.perf_counter() - start, "mb": memory}


def resident_mb() -> float:
    """Resident memory of this process in MB; peak memory on systems that report nothing else."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    print(json.dumps(measure_job(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
