"""A job's progress, which its driver writes and ``tellapart job status`` reads on any machine."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from tellapart.jobs.job import STATUS, Job, now
from tellapart.jobs.json_files import read_object, write_object
from tellapart.utils.progress import clock

PULSE = {"state": str, "at": int | float, "pid": int, "host": str, "workers": int, "items_per_second": int | float,
         "seconds_left": int | float | None}  # fmt: skip
EVERY_SECONDS = 2.0
SILENT_SECONDS = 60.0  # a driver that has not written an update for this long is considered dead


@dataclass
class Pulse:
    """A job's progress, which its driver writes every two seconds. ``new`` counts the shards in ``done`` that this run
    finished.
    """

    job: Job
    state: str = "running"
    done: int = 0
    new: int = 0
    items: int = 0
    failed: int = 0
    workers: int = 0
    retries: int = 0
    _started: float = field(default_factory=time.monotonic)
    _written: float = 0.0

    def add(self, items: int) -> None:
        """Counts a finished shard."""
        self.done, self.new, self.items = self.done + 1, self.new + 1, self.items + items

    @property
    def items_per_second(self) -> float:
        """The average number of items per second since the driver started."""
        return self.items / max(1e-9, time.monotonic() - self._started)

    def write(self, *, always: bool = False) -> None:
        """Writes the status if an update is due, or unconditionally if ``always`` is set."""
        if not always and time.monotonic() - self._written < EVERY_SECONDS:
            return
        self._written = time.monotonic()
        per_second = self.new / max(1e-9, self._written - self._started)
        left = self.job.shards - self.done
        value = {
            "state": self.state, "shards_per_second": per_second, "items_per_second": self.items_per_second,
            "workers": self.workers, "retries": self.retries, "at": time.time(), "host": socket.gethostname(),
            "pid": os.getpid(), "seconds_left": left / per_second if per_second else None,
        }  # fmt: skip
        write_object(self.job.folder, STATUS, value)


def status_of(job: Job) -> dict[str, Any]:
    """Returns a job's status. ``state`` is waiting, running, stopped, finished, or failed (if shards were set
    aside).
    """
    done, failed = job.done(), job.failed()
    pulse = read_object(job.folder, STATUS, PULSE) or {}
    heard = time.time() - pulse["at"] if pulse else None
    state = str(pulse.get("state", "waiting"))
    if state == "running" and heard is not None and abs(heard) > SILENT_SECONDS:  # negative if a clock was set back
        state = "stopped"
    running = state == "running" and len(done) < job.shards
    unsound = {} if running else job.unsound()  # a running job has checked its results at the start
    if not running:
        state = "finished" if len(done) == job.shards and not unsound else "stopped" if state == "finished" else state
    return {
        "job": job.path, "work": job.work, "state": state, "shards": job.shards, "done": len(done) - len(unsound),
        "set_aside": failed, "unsound": list(unsound.values()), "items": job.items, "out": job.out,
        "begun": job.value.get("begun"), "now": now(),
        "workers": pulse.get("workers") if running else 0,
        "items_per_second": pulse.get("items_per_second") if running else None,
        "seconds_left": pulse.get("seconds_left") if running else None,
        "driver": f"process {pulse['pid']} on host {pulse['host']}" if pulse else None,
        "seconds_since_heard": None if heard is None else round(heard, 1),
    }  # fmt: skip


def status_lines(status: dict[str, Any]) -> list[str]:
    """Formats the status as lines of text."""
    percent = 100 * status["done"] / max(1, status["shards"])
    items = f", {status['items']:,} items" if status["items"] is not None else ""
    lines = [
        f"{status['job']}: {status['work']}, {status['state']}",
        f"{status['done']:,} of {status['shards']:,} shards done ({percent:.1f}%){items}",
    ]
    if status["state"] == "running":
        left = status["seconds_left"]
        rate = status["items_per_second"] or 0.0
        lines.append(
            f"{status['workers']} workers, {rate:,.1f} items/s, {'?' if left is None else clock(left)} left; driver: "
            f"{status['driver']}"
        )
    if status["state"] == "stopped" and status["driver"] is not None:
        heard = status["seconds_since_heard"]
        last = (
            f"last reported {clock(heard)} ago"
            if heard >= 0
            else f"reported {clock(-heard)} ahead of this machine's clock"
        )
        lines.append(f"the driver, {status['driver']}, {last}; run the same command again to resume")
    lines += [f"damaged: {reason}; run the same command again to repeat this shard" for reason in status["unsound"]]
    lines += [failed_line(failed) for failed in status["set_aside"]]
    return lines


def failed_line(failed: dict[str, Any]) -> str:
    """Describes a failed shard on one line."""
    tries = f" ({failed['attempts']} attempts)" if failed["attempts"] > 1 else ""
    return f"failed: shard {failed['shard']} ({failed['name']}): {failed['reason']}{tries}"
