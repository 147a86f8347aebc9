"""A Ray cluster of three nodes on this machine, in a process of its own: ``python ray_nodes.py``.

It prints its address; a line on its input asks for something, and the answer is the number of the process that was
killed: ``node`` kills a node's raylet (-9) and adds another node, ``worker`` kills a worker (-9) as soon as one does a
shard. The end of its input ends it, and so does a minute without a worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

NODES = 3
HEALTH = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}
STORE = 80 << 20
WITHIN = 60.0  # seconds for a worker to be busy: after a fault it loads its model anew


def serve() -> None:
    """The cluster, for as long as the input lasts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": STORE,
            "include_dashboard": False,
            "_system_config": HEALTH,
        },
    )
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(NODES)]
    print(cluster.address, flush=True)
    turn = 0
    try:
        for line in sys.stdin:
            if line.strip() == "node":
                node = nodes.pop(0)
                killed = node.all_processes["raylet"][0].process.pid
                os.kill(killed, signal.SIGKILL)
                cluster.remove_node(node, allow_graceful=False)
                nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE, wait=False))
            else:
                turn += 1
                killed = kill_worker(turn)
            print(killed, flush=True)
    finally:
        cluster.shutdown()


def kill_worker(turn: int) -> int:
    """Kill one of the busy workers, by turns. Raises `TimeoutError` where none is busy."""
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        if pids := busy_workers():
            process = psutil.Process(pids[turn % len(pids)])
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(30)
                return process.pid
        time.sleep(0.01)
    raise TimeoutError("no worker does a shard")


def busy_workers() -> list[int]:
    """The workers below this process that do a shard."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith("ray::") and "Worker.run" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


class Nodes:
    """The cluster of `serve`. Nothing of it is left when the block ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Nodes:
        self.address = self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        below = psutil.Process(self._process.pid).children(recursive=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        end(self._process, below)

    def ask(self, what: str) -> int:
        """``node`` or ``worker``. Returns the number of the process that was killed."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster ended"
        return line


@contextlib.contextmanager
def started_head(folder: str, cpus: int) -> Iterator[None]:
    """``ray start --head`` for as long as the block runs; RAY_TMPDIR is ``folder``, so that no one else finds it."""
    options = ("--port", "0", "--disable-usage-stats", "--block", "--num-cpus", str(cpus))
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *options, "--object-store-memory", str(STORE)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "RAY_TMPDIR": folder},
    )  # fmt: skip
    try:
        until = time.monotonic() + 2 * WITHIN
        while not (Path(folder) / "ray" / "ray_current_cluster").is_file():
            assert process.poll() is None and time.monotonic() < until, "ray start --head failed"
            time.sleep(0.1)
        yield
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        end(process, below)


def end(process: subprocess.Popen[Any], below: Sequence[psutil.Process]) -> None:
    """Wait for a process that is to end; kill what is left of it, and of those below it."""
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
    for child in below:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(below, timeout=10)


class Driver:
    """A command of tellapart in a process of its own, which can be killed."""

    def __init__(self, *arguments: object, log: Path) -> None:
        self._log = log.open("a")
        self._command = [sys.executable, "-m", "tellapart", *map(str, arguments)]
        self.start()

    def start(self) -> None:
        """Type the command."""
        self.process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float) -> int:
        """Its exit status. Fails after so many seconds."""
        return self.process.wait(seconds)


def wait_for(folder: Path, parts: int, driver: Driver, seconds: float) -> dict[str, tuple[int, int]]:
    """Wait until so many results are there, or the driver ends: their (inode, time of change)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = results(folder)
        if len(found) >= parts or driver.process.poll() is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{len(results(folder))} results after {seconds} s, expected {parts}")


def results(folder: Path) -> dict[str, tuple[int, int]]:
    """The results of shards that are there: name to (inode, time of change)."""
    found = {}
    for file in folder.glob("parts-*/[0-9]*.jsonl"):
        state = file.stat()
        found[file.name] = (state.st_ino, state.st_mtime_ns)
    return found


if __name__ == "__main__":
    serve()
