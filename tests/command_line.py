"""What a command left behind, as a stranger sees it. The fixture ``cli`` of conftest.py gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    """What a command left: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a command that failed."""
        assert self.status != 0 and self.out == ""
        assert self.err.startswith("tellapart: ") and self.err.count("\n") == 1, self.err
        return self.err.removeprefix("tellapart: ").rstrip("\n")


Cli = Callable[..., Done]
