"""Shows the progress of long jobs.

A long job shows a progress bar with rate and remaining time in a terminal, and prints a line every 30 seconds
elsewhere. Nothing is shown during the first two seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, TypeVar

import rich.progress

from tellapart.utils.messages import quiet, say
from tellapart.utils.terminal_text import console

T = TypeVar("T")
QUIET_SECONDS = 2.0
LINE_SECONDS = 30.0


class Progress:
    """A progress display: ``with Progress(total, "encoding") as progress: … progress.advance(64)``.

    total: the total number; if None, only the count and the rate are shown.
    done: the number already done, which counts towards the total but not towards the rate.
    note: text after the count; may be set at any time.
    """

    def __init__(self, total: int | None, label: str, *, done: int = 0, enabled: bool = True) -> None:
        self.total, self.label, self.enabled = total, label, enabled and not quiet()
        self.done = self._before = done
        self.note = ""
        self._started = self._last_line = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Advances by ``count``."""
        self.done += count
        if not self.enabled:
            return
        now = time.monotonic()
        if sys.stderr.isatty():
            self._advance_bar(now)
        elif now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            say(self.line(now - self._started))

    def line(self, seconds: float) -> str:
        """Formats the progress after ``seconds`` as one line of text."""
        rate, note = self._rate(seconds), f"; {self.note}" if self.note else ""
        if self.total is None:
            return f"{self.label}: {self.done:,}, {rate:.1f}/s{note}"
        left = f"{clock((self.total - self.done) / rate)} left" if rate > 0 else "time left unknown"
        return f"{self.label}: {self.done:,} of {self.total:,}, {rate:.1f}/s, {left}{note}"

    def _rate(self, seconds: float) -> float:
        return (self.done - self._before) / seconds if seconds > 0 else 0.0

    def _advance_bar(self, now: float) -> None:
        if self._bar is None:
            if now - self._started < QUIET_SECONDS:
                return
            self._bar = _rich_bar()
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, rate="", note="", start=False)
            self._bar.update(self._task, completed=self._before)
            self._bar.start_task(self._task)  # earlier work does not count towards the rate
        rate = self._rate(now - self._started)
        self._bar.update(self._task, completed=self.done, rate=f"{rate:,.1f}/s", note=self.note)


def track(iterable: Iterable[T], total: int | None = None, label: str = "", *, enabled: bool = True) -> Iterator[T]:
    """Iterates over ``iterable`` and shows the progress. ``total`` defaults to its length, if it has a length."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with Progress(total, label, enabled=enabled) as progress:
        for value in iterable:
            yield value
            progress.advance()


def _rich_bar() -> Any:
    columns = [
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[rate]}"),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[note]}", markup=False),
    ]
    return rich.progress.Progress(*columns, console=console(stderr=True), transient=True)


def clock(seconds: float) -> str:
    """Formats seconds as a time such as ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
