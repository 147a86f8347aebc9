"""Trains arms on all cores: each process trains whole arms and writes their captions, on one thread.

Such small models train faster in parallel, with one core each, than one after the other on all cores.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from replication.lab import Lab
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

LONGEST_FIRST_BELOW = 4  # remaining tasks per worker


@dataclass(frozen=True)
class Task:
    """Trains one arm with one seed, then writes its captions for these (test set, decoding) pairs."""

    arm: str
    seed: int
    captions: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.arm, self.seed


class WorkerPool:
    """Runs tasks in order in ``workers`` processes. Each arm runs after the arm that it starts from.

    ``with WorkerPool(lab, tasks, workers) as pool: pool.finish(keys)`` returns when those tasks are done; others
    continue. The processes log to ``lab.folder / "workers.log"``. Meanwhile this process, too, uses a single thread,
    because more threads would compete with the workers for cores.
    """

    def __init__(self, lab: Lab, tasks: Iterable[Task], workers: int) -> None:
        self.lab, self.todo, self.workers = lab, list(tasks), workers
        self.done: set[tuple[str, int]] = set()
        self.running: dict[Future[None], Task] = {}
        self.progress = Progress(len(self.todo), "arms")

    def __enter__(self) -> WorkerPool:
        import torch

        self.threads = torch.get_num_threads()
        torch.set_num_threads(1)
        log = self.lab.folder / "workers.log"
        say(f"{len(self.todo)} arms, {self.workers} at a time; log of the workers: {log}")
        self.executor = single_threaded_workers(self.workers, log, self.lab)
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        self.executor.shutdown(cancel_futures=True)
        torch.set_num_threads(self.threads)
        self.progress.__exit__(kind, error, trace)

    def finish(self, keys: Collection[tuple[str, int]]) -> None:
        """Waits for these tasks. Re-raises the exception of any task."""
        self._submit()
        while not self.done.issuperset(keys):
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                task = self.running.pop(future)
                future.result()
                self.done.add(task.key)
                self.progress.advance()
            self._submit()

    def _submit(self) -> None:
        """Submits tasks whose initial arm is done: slightly more than there are workers, so that none waits for this
        process.
        """
        while len(self.running) < 2 * self.workers and (ready := [task for task in self.todo if self._is_ready(task)]):
            # Near the end, submit the longest tasks first, so that no process runs alone while the others are idle.
            near_the_end = len(self.todo) <= LONGEST_FIRST_BELOW * self.workers
            task = max(ready, key=self._work) if near_the_end else ready[0]
            self.todo.remove(task)
            self.running[self.executor.submit(_run, task)] = task

    def _is_ready(self, task: Task) -> bool:
        start = self.lab.arms[task.arm].start
        return start is None or (start, task.seed) in self.done

    def _work(self, task: Task) -> int:
        """Estimates the work of training the arm: captions per step, summed over all steps."""
        table = self.lab.arms[task.arm].table
        if table is None:
            return 0
        return int(table["training"]["steps"] * table["objective"].get("decoding", {}).get("samples", 1))


def single_threaded_workers(workers: int, log: Path, lab: Lab | None = None) -> ProcessPoolExecutor:
    """Starts processes with one thread each that log to ``log`` and end with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")  # torch may hang after a fork
    return ProcessPoolExecutor(workers, spawn, initializer=_start, initargs=(lab, str(log)))


_lab: Lab | None = None


def _start(lab: Lab | None, log: str) -> None:
    """Initializes a worker process: one thread, and no progress bars in addition to the parent's."""
    import torch

    global _lab
    torch.set_num_threads(1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.stderr = open(log, "a", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115  (open as long as the process)
    _lab = lab


def _exit_with_parent() -> None:
    """Exits when the parent is killed, because the worker would otherwise continue to run without a purpose."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def until_interrupted(work: Callable[[], None]) -> None:
    """Runs a worker's task. Ctrl-C, which reaches this process, too, ends it before it takes the next task."""
    try:
        work()
    except KeyboardInterrupt:
        os._exit(130)


def _run(task: Task) -> None:
    assert _lab is not None
    lab = _lab

    def work() -> None:
        lab.train(*task.key)
        for test_set, decoding in task.captions:
            lab.caption_lists(*task.key, test_set, decoding)

    until_interrupted(work)
