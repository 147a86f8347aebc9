"""Handles Ctrl-C and SIGTERM during training: finishes and saves the current step before the process ends."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from tellapart.models import ranks
from tellapart.utils.messages import quiet

LINE = b"tellapart: finishing this step and saving a checkpoint; press Ctrl-C again to stop at once\n"


class Interruption:
    """Defers the first SIGINT or SIGTERM in a ``with`` block until `end`. A second signal takes effect immediately.

    Has no effect outside the main thread, because only the main thread receives signals. Ignored signals remain
    ignored.
    """

    def __init__(self) -> None:
        self._process, self._signal = os.getpid(), 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._hold)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @property
    def requested(self) -> bool:
        """Returns True on all ranks if any rank received a signal."""
        return ranks.anywhere(bool(self._signal))

    def end(self) -> None:
        """Delivers the deferred signal. Raises KeyboardInterrupt unless a handler ends the process."""
        self._take_effect(self._signal, None)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._signal or os.getpid() != self._process:
            self._take_effect(number, frame)
        self._signal = number
        if ranks.is_main() and not quiet():
            os.write(2, LINE)  # a handler may interrupt a write to sys.stderr, which is not reentrant

    def _take_effect(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers.get(number)
        if callable(handler):
            handler(number, frame)
        raise KeyboardInterrupt
