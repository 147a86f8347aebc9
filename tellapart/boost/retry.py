"""Asking again: exponential backoff with full jitter, ``Retry-After``, and when to give up.

Full jitter (M. Brooker, "Exponential Backoff And Jitter", 2015): the n-th wait is uniform between 0 and
min(cap, base · 2ⁿ), so that those who failed together do not come back together.
"""

from __future__ import annotations

import random
import threading
import time

from tellapart.boost.types import Answer, Backend, BackendError, Request

TRIES = 8
BASE_SECONDS, CAP_SECONDS = 0.5, 30.0
PATIENCE_SECONDS = 900.0


class Stopped(Exception):
    """The job ends: who waits for a next try waits no longer."""


class Patient:
    """A backend that asks ``backend`` again where that may help. Several threads may call at once.

    A request is given up after ``tries`` while others are answered: the fault is its own. Where nobody is answered the
    server is out, and everybody waits for up to ``patience`` seconds since its last answer; a server that never
    answered gets ``tries`` and no more. "Not now" counts as no try, and holds for all threads.
    """

    def __init__(
        self,
        backend: Backend,
        stop: threading.Event,
        *,
        tries: int = TRIES,
        patience: float = PATIENCE_SECONDS,
        base: float = BASE_SECONDS,
        cap: float = CAP_SECONDS,
    ) -> None:
        self.backend, self.name = backend, backend.name
        self.again = 0  # how often something was asked again
        self._stop = stop
        self._tries, self._patience, self._base, self._cap = tries, patience, base, cap
        self._lock = threading.Lock()
        self._answered: float | None = None  # when the server last answered anybody
        self._not_before = 0.0

    def complete(self, request: Request) -> Answer:
        """The backend's answer. Raises `BackendError` where it is given up, `Stopped` where the job ends."""
        began, failed, again = time.monotonic(), 0, 0
        while True:
            self._wait(self._not_before - time.monotonic())
            try:
                answer = self.backend.complete(request)
            except BackendError as error:
                failed += error.after is None
                self._give_up(error, began, failed)
                self._note(error)
            else:
                self._answered = time.monotonic()
                return answer
            self._wait(random.uniform(0.0, min(self._cap, self._base * 2.0 ** min(again, 20))))
            again += 1

    def _give_up(self, error: BackendError, began: float, failed: int) -> None:
        """Raise where asking again is of no use."""
        if not error.retry:
            raise error
        now = time.monotonic()
        since = began if self._answered is None else self._answered
        if now - since + (error.after or 0.0) > self._patience:
            raise BackendError(f"{error}; nothing was answered for {now - since:.0f} s", fatal=True) from None
        if failed < self._tries and now - began <= self._patience:
            return
        if self._answered is None:
            raise BackendError(f"{error}; {failed} tries, and it has answered nothing yet", fatal=True) from None
        if self._answered > began:
            raise BackendError(f"{error}; given up after {failed} tries") from None

    def _note(self, error: BackendError) -> None:
        with self._lock:
            self.again += 1
            self._not_before = max(self._not_before, time.monotonic() + (error.after or 0.0))

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped
