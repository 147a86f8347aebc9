"""Arms on all cores: each process trains and hears whole arms with one thread.

Models as small as these are trained sooner two at once, a core each, than one after the other on two cores.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType

from tellapart.claims.lab import Lab
from tellapart.progress import Progress
from tellapart.utils.messages import say

LAST = 4  # tasks a worker


@dataclass(frozen=True)
class Task:
    """One arm with one seed: its training, and then its captions of these (tests, decodings)."""

    arm: str
    seed: int
    heard: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.arm, self.seed


class Crew:
    """``workers`` processes go through tasks in their order, an arm after the one that it starts from.

    ``with Crew(lab, tasks, workers) as crew: crew.finish(keys)`` comes back when those tasks are done; others go on.
    What the processes say stands in ``lab.folder / "crew.log"``. Meanwhile this process has one thread too: a
    second one would wait for cores that the others are using, and keep them from working.
    """

    def __init__(self, lab: Lab, tasks: Iterable[Task], workers: int) -> None:
        self.lab, self.todo, self.workers = lab, list(tasks), workers
        self.done: set[tuple[str, int]] = set()
        self.running: dict[Future[None], Task] = {}
        self.progress = Progress(len(self.todo), "arms")

    def __enter__(self) -> Crew:
        import torch

        self.threads = torch.get_num_threads()
        torch.set_num_threads(1)
        log = self.lab.folder / "crew.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        say(f"{len(self.todo)} arms, {self.workers} at a time; what they say: {log}")
        spawn = multiprocessing.get_context("spawn")  # a forked torch may hang
        self.pool = ProcessPoolExecutor(self.workers, spawn, initializer=_begin, initargs=(self.lab, str(log)))
        self.progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import torch

        self.pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self.threads)
        self.progress.__exit__(kind, error, trace)

    def finish(self, keys: Collection[tuple[str, int]]) -> None:
        """Wait for these tasks. Raises what one of any raised."""
        self._fill()
        while not self.done.issuperset(keys):
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                task = self.running.pop(future)
                future.result()
                self.done.add(task.key)
                self.progress.advance()
            self._fill()

    def _fill(self) -> None:
        """Hand out tasks whose start is there; a few more than workers, so that none waits for this process."""
        while len(self.running) < 2 * self.workers and (ready := [task for task in self.todo if self._ready(task)]):
            # At the end the long ones first: else one process would work on while the others have nothing left to do.
            task = max(ready, key=self._work_in) if len(self.todo) <= LAST * self.workers else ready[0]
            self.todo.remove(task)
            self.running[self.pool.submit(_work, task)] = task

    def _ready(self, task: Task) -> bool:
        start = self.lab.arms[task.arm].start
        return start is None or (start, task.seed) in self.done

    def _work_in(self, task: Task) -> int:
        """Captions that the arm's training reads for each picture of a batch."""
        table = self.lab.arms[task.arm].table
        if table is None:
            return 0
        return int(table["training"]["steps"] * table["objective"].get("decoding", {}).get("samples", 1))


_lab: Lab | None = None


def _begin(lab: Lab, log: str) -> None:
    """In a new process: one thread, and no bars beside those of the others."""
    import torch

    global _lab
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stderr = open(log, "a", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115  (open as long as the process)
    _lab = lab


def _end_with_parent() -> None:
    """A process whose parent was killed has nobody left to work for."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(task: Task) -> None:
    assert _lab is not None
    try:
        _lab.train(*task.key)
        for test, decoding in task.heard:
            _lab.captions(*task.key, test, decoding)
    except KeyboardInterrupt:  # Ctrl-C reaches this process too: it must not take the next task
        os._exit(130)
