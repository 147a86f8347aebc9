"""Retries failed requests with exponential backoff and full jitter, obeys ``Retry-After``, and decides when to give up.

Full jitter (M. Brooker, "Exponential Backoff And Jitter", 2015) draws the n-th wait uniformly from
[0, min(cap, base · 2ⁿ)] seconds, so that requests that failed together are not retried together.
"""

from __future__ import annotations

import itertools
import random
import threading
import time

from tellapart.boost.types import Answer, Backend, BackendError, Request
from tellapart.utils.messages import say

TRIES = 8
BASE_SECONDS, CAP_SECONDS = 0.5, 30.0
PATIENCE_SECONDS = 900.0
SILENT_SECONDS = 10.0  # seconds without an answer before the silence is reported
MAX_DOUBLINGS = 30  # keeps the power of two finite; the cap is reached long before


class Stopped(Exception):
    """Raised if the job stops while a request is waiting to be retried."""


class RetryingBackend:
    """Retries failed requests to ``backend`` if a retry can help. Thread-safe.

    While other requests succeed, a request fails after ``tries`` attempts. While no request succeeds, the server is
    considered down, and all requests keep waiting until ``patience`` seconds have passed since its last answer. If the
    server has never answered, a request fails after ``tries`` attempts. Replies such as 429 do not count as attempts,
    and their ``Retry-After`` delays all threads.
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
        self.retries = 0  # number of retries so far
        self._stop = stop
        self._tries, self._patience, self._base, self._cap = tries, patience, base, cap
        self._lock = threading.Lock()
        self._answered: float | None = None  # time of the server's last answer to any request
        self._not_before = 0.0
        self._waiting, self._waiting_since = 0, 0.0  # number of pending requests, and when it last rose above zero
        self._reported, self._failure = -1.0, ""

    def complete(self, request: Request) -> Answer:
        """Returns the backend's answer. Raises `BackendError` after the last attempt, and `Stopped` when the job is
        stopping.
        """
        started, failed = time.monotonic(), 0
        with self._lock:
            self._waiting_since = self._waiting_since if self._waiting else started
            self._waiting += 1
        try:
            for attempt in itertools.count():
                self._sleep(self._not_before - time.monotonic())
                try:
                    answer = self.backend.complete(request)
                except BackendError as error:
                    failed += error.after is None
                    self._raise_if_useless(error, started, failed)
                    with self._lock:
                        self.retries, self._failure = self.retries + 1, str(error)
                        self._not_before = max(self._not_before, time.monotonic() + (error.after or 0.0))
                    longest = self._base * 2.0 ** min(attempt, MAX_DOUBLINGS)
                    self._sleep(random.uniform(0, min(self._cap, longest)))
                else:
                    self._answered, self._failure = time.monotonic(), ""
                    return answer
            raise AssertionError("unreachable")
        finally:
            with self._lock:
                self._waiting -= 1

    def report_silence(self) -> None:
        """Reports once that the server is not answering. The report contains its address, the time of its last answer,
        and how long requests will wait.

        Must be called regularly. Raises `BackendError` once that time has passed, even if a request is still pending.
        """
        since = max(self._waiting_since, self._answered or 0.0)
        silent = time.monotonic() - since
        if not self._waiting or silent < SILENT_SECONDS or (address := getattr(self.backend, "address", None)) is None:
            return
        patience = max(self._patience, getattr(self.backend, "timeout", 0.0))
        if silent > patience:
            raise BackendError(f"{self.name}: {address} has not answered for {silent:.0f} s", fatal=True)
        if self._reported != since:
            self._reported = since
            begun, end = (time.strftime("%H:%M:%S", time.localtime(time.time() - silent + s)) for s in (0, patience))
            why = f" ({self._failure.removeprefix(f'{self.name}: ')})" if self._failure else ""
            say(f"{self.name}: no answer from {address} since {begun}{why}; waiting until {end} at the latest")

    def _raise_if_useless(self, error: BackendError, started: float, failed: int) -> None:
        """Raises the error if another attempt cannot help."""
        if not error.retry:
            raise error
        now = time.monotonic()
        silent = now - (started if self._answered is None else self._answered)
        if silent + (error.after or 0.0) > self._patience:
            raise BackendError(f"{error}; no answer for {silent:.0f} s", fatal=True)
        if failed < self._tries and now - started <= self._patience:
            return
        if self._answered is None:
            raise BackendError(f"{error}; no answer after {failed} attempts", fatal=True)
        if self._answered > started:
            raise BackendError(f"{error}; gave up after {failed} attempts")

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped
