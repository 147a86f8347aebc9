"""Reports ranks that stop responding, and ends this rank if its launcher dies."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

BEAT = 5.0  # seconds between heartbeats
SILENT = 60.0  # number of seconds without a heartbeat after which a rank is reported
GRACE = 60.0  # number of seconds that a rank has to save its step after its launcher has died


class RankWatch(threading.Thread):
    """A thread in each rank that writes heartbeats to the group's store, and reads those of the other ranks.

    Without it, collectives would silently wait for a stopped rank until they time out. ``store``: a
    torch.distributed.Store. ``launcher``: id of the process that started this rank, or 0 if that process may end before
    this rank does.
    """

    def __init__(self, store: Any, rank: int, count: int, launcher: int = 0) -> None:
        super().__init__(name="rank watch", daemon=True)
        self._store: Any = store
        self._rank, self._count, self._launcher = rank, count, launcher
        self._done, self._beats = threading.Event(), 0
        self._seen = {other: (b"", time.monotonic()) for other in range(count) if other != rank}
        self._silent: set[int] = set()

    def stop(self) -> None:
        """Ends the thread."""
        self._done.set()

    def run(self) -> None:
        """Runs the thread (see `threading.Thread.run`)."""
        while not self._done.wait(BEAT):
            if self._launcher and os.getppid() != self._launcher:
                self._end_process()
                return
            if self._store is not None:
                try:
                    self._look(self._store)
                except RuntimeError:  # the process that holds the store has ended
                    self._store = None

    def _look(self, store: Any) -> None:
        self._beats += 1
        store.set(f"alive/{self._rank}", f"{self._beats} process {os.getpid()} on {socket.gethostname()}")
        for other, (last, since) in self._seen.items():
            key = f"alive/{other}"
            beat = store.get(key) if store.check([key]) else b""
            if beat != last or not beat:
                self._seen[other] = (beat, time.monotonic())
                self._silent.discard(other)
            elif time.monotonic() - since >= SILENT and other not in self._silent:
                self._silent.add(other)
                if self._rank == min(set(range(self._count)) - self._silent):
                    process = beat.decode().partition(" ")[2]
                    self._print(
                        f"rank {other} of {self._count} ({process}) has not responded for {SILENT:.0f} seconds, and "
                        "the other ranks are waiting for it; if that process is stopped, run on its machine: kill "
                        f"-CONT {process.split()[1]}; to abort, press Ctrl-C"
                    )

    def _end_process(self) -> None:
        self._print(
            f"rank {self._rank} of {self._count} exits because its launcher (process {self._launcher}) has ended"
        )
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._done.wait(GRACE):
            os._exit(1)

    @staticmethod
    def _print(line: str) -> None:
        print(f"tellapart: {line}", file=sys.stderr, flush=True)  # not `say`, because the main rank may have ended
