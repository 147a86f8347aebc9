"""Counts the captions in a file that are not used, and reports them in one line per reason.

Readers of files and data sets drop empty references and the captions that VizWiz marks. `tellapart.metrics` and
`tellapart.compat` score exactly the texts that they receive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tellapart.utils.messages import say_once

EMPTY = "empty"
MISSING = "missing"


class DroppedCaptions:
    """Counts of dropped captions by reason: `EMPTY`, `MISSING`, or a VizWiz flag."""

    def __init__(self) -> None:
        self.counts, self._first = Counter[str](), dict[str, str]()

    def add(self, reason: str, where: str) -> None:
        """Counts one caption."""
        self.counts[reason] += 1
        self._first.setdefault(reason, where)

    def say(self, name: str) -> None:
        """Prints how many captions were dropped, and where the first one is."""
        descriptions = {
            MISSING: "captions that stand for a missing value ('NA', 'nan', 'null', …)",
            EMPTY: "empty captions",
        }
        for reason, what in descriptions.items():
            if count := self.counts[reason]:
                say_once(f"{name}: ignoring {count:,} {what}; the first is in {self._first[reason]}")
        if flags := {reason: count for reason, count in self.counts.items() if reason not in descriptions}:
            counts = ", ".join(f"{flag}: {count:,}" for flag, count in flags.items())
            total = f"ignoring {sum(flags.values()):,} captions, as VizWiz does"
            say_once(f"{name}: {total} ({counts}); the first is in {self._first[next(iter(flags))]}")


_current: ContextVar[DroppedCaptions | None] = ContextVar("dropped captions", default=None)


@contextmanager
def counting_dropped(name: str) -> Iterator[DroppedCaptions]:
    """Counts calls to `drop` inside the block, and reports them at the end. Rows that are read twice count once."""
    dropped = DroppedCaptions()
    token = _current.set(dropped)
    try:
        yield dropped
    finally:
        _current.reset(token)
    dropped.say(name)


def drop(reason: str, where: str) -> None:
    """Counts a caption that is not used. Does nothing outside `counting_dropped`."""
    if dropped := _current.get():
        dropped.add(reason, where)
