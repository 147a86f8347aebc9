"""How far a job is, from its files alone: of a running one, from any terminal or machine."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from tellapart.jobs.job import STATUS, Job, now, read_value

PULSE = {"state": str, "at": int | float, "pid": int, "host": str, "workers": int, "items_per_second": int | float,
         "seconds_left": int | float | None}  # fmt: skip
EVERY_SECONDS = 2.0
SILENT_SECONDS = 60.0  # without a word from the driver: it is gone


@dataclass
class Pulse:
    """What the driver of a job writes down every two seconds."""

    job: Job
    state: str = "running"
    done: int = 0
    new: int = 0
    items: int = 0
    workers: int = 0
    retries: int = 0
    _started: float = field(default_factory=time.monotonic)
    _written: float = 0.0

    @property
    def seconds(self) -> float:
        """Since the driver began."""
        return time.monotonic() - self._started

    def write(self, *, always: bool = False) -> None:
        """Write it down, if it is time."""
        if not always and time.monotonic() - self._written < EVERY_SECONDS:
            return
        self._written = time.monotonic()
        per_second = self.new / self.seconds if self.seconds > 0 else 0.0
        left = self.job.shards - self.done
        value = {
            "state": self.state, "shards_per_second": per_second, "items_per_second": self.items / self.seconds,
            "workers": self.workers, "retries": self.retries, "at": time.time(), "host": socket.gethostname(),
            "pid": os.getpid(), "seconds_left": left / per_second if per_second else None,
        }  # fmt: skip
        self.job.folder.write(STATUS, (json.dumps(value) + "\n").encode())


def status_of(job: Job) -> dict[str, Any]:
    """The state of a job: ``state`` is waiting, running, stopped, finished, or failed (shards were set aside)."""
    done, failed = job.done(), job.failed()
    pulse = read_value(job.folder.read(STATUS), PULSE) or {}
    heard = time.time() - pulse["at"] if pulse else None
    state = str(pulse.get("state", "waiting"))
    if state == "running" and heard is not None and heard > SILENT_SECONDS:
        state = "stopped"
    running = state == "running" and len(done) < job.shards
    unsound = {} if running else job.unsound()  # a running job compared them when it began
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
    """The state in lines of text."""
    percent = 100 * status["done"] / max(1, status["shards"])
    items = f", {status['items']:,} items" if status["items"] is not None else ""
    lines = [
        f"{status['job']}: {status['work']}, {status['state']}",
        f"{status['done']:,} of {status['shards']:,} shards are done ({percent:.1f} %){items}",
    ]
    if status["state"] == "running":
        left = status["seconds_left"]
        rate = status["items_per_second"] or 0.0
        lines.append(
            f"{status['workers']} workers, {rate:,.1f} items/s, {'?' if left is None else clock(left)} left; driver: "
            f"{status['driver']}"
        )
    if status["state"] == "stopped" and status["driver"] is not None:
        lines.append(
            f"the driver, {status['driver']}, has not reported for "
            f"{clock(status['seconds_since_heard'])}; the same command "
                     "goes on")  # fmt: skip
    lines += [f"damaged: {reason}; the same command does it again" for reason in status["unsound"]]
    lines += [failed_line(failed) for failed in status["set_aside"]]
    return lines


def failed_line(failed: dict[str, Any]) -> str:
    """A shard that was set aside, in one line."""
    tries = f" ({failed['attempts']} attempts)" if failed["attempts"] > 1 else ""
    return f"set aside: shard {failed['shard']} ({failed['name']}): {failed['reason']}{tries}"


def clock(seconds: float) -> str:
    """Such as ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
