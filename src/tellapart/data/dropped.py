"""Captions that stand in a file and are not used, counted while it is read, and said in one line for each reason.

Empty references are none in files and data sets; VizWiz leaves out what it marks. `tellapart.metrics` and
`tellapart.compat` score exactly the texts that they are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tellapart.utils.messages import say_once

EMPTY = "empty"


class DroppedCaptions:
    """Counts of captions by reason: `EMPTY`, or the flag of VizWiz."""

    def __init__(self) -> None:
        self.counts, self._first = Counter[str](), dict[str, str]()

    def add(self, reason: str, where: str) -> None:
        """Counts one."""
        self.counts[reason] += 1
        self._first.setdefault(reason, where)

    def say(self, name: str) -> None:
        """Prints how many there are, and where the first one is."""
        flags = {reason: count for reason, count in self.counts.items() if reason != EMPTY}
        if empty := self.counts[EMPTY]:
            say_once(f"{name}: {empty:,} captions are empty and are not used, such as one of {self._first[EMPTY]}")
        if flags:
            counts = ", ".join(f"{flag}: {count:,}" for flag, count in flags.items())
            total = f"{sum(flags.values()):,} captions are ignored, as VizWiz ignores them"
            say_once(f"{name}: {total} ({counts}), such as one of {self._first[next(iter(flags))]}")


_current: ContextVar[DroppedCaptions | None] = ContextVar("dropped captions", default=None)


@contextmanager
def counting_dropped(name: str) -> Iterator[None]:
    """Counts what `drop` is told of inside, and says it at the end. Rows that are read again later do not count."""
    dropped = DroppedCaptions()
    token = _current.set(dropped)
    try:
        yield
    finally:
        _current.reset(token)
    dropped.say(name)


def drop(reason: str, where: str) -> None:
    """Counts a caption that is not used, if somebody counts."""
    if dropped := _current.get():
        dropped.add(reason, where)
