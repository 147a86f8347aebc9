"""Limits how many participants may start per network address, so that nobody can fill the study."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from starlette.requests import Request

from tellapart.errors import TellapartError
from tellapart.utils.messages import say

HOUR = 3600.0
MAX_ADDRESSES = 10_000  # maximum number of addresses in memory; the least recently seen is dropped first


class TooManyStarts(TellapartError):
    """Too many participants have started from this address."""


class StartLimit:
    """Counts the starts of the last hour by address. Addresses are kept in memory only, never written to a file.

    ``clock``: returns seconds since 1970. ``proxied``: whether the server is behind a proxy. If so, a start without an
    address means that the proxy is misconfigured.
    """

    def __init__(self, clock: Callable[[], float], proxied: bool = False) -> None:
        self._clock, self._lock, self._proxied = clock, threading.Lock(), proxied
        self._starts: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, address: str, most: int) -> None:
        """Counts a start. Raises `TooManyStarts` after ``most`` in the last hour; "" and 0 mean no limit."""
        if not most:
            return
        if not address:
            if self._proxied:
                say(
                    "starts_per_address has no effect, because the reverse proxy sends no "
                    "X-Forwarded-For header; configure it to send the client's address"
                )
            self._proxied = False  # said once
            return
        now = self._clock()
        with self._lock:
            starts = self._starts.setdefault(address, deque())
            self._starts.move_to_end(address)
            while starts and starts[0] <= now - HOUR:
                starts.popleft()
            if len(starts) >= most:
                raise TooManyStarts("too many participants have begun from your network; please try again in an hour")
            starts.append(now)
            if len(self._starts) > MAX_ADDRESSES:
                self._starts.popitem(last=False)


def address_of(request: Request) -> str:
    """Returns the client's address as seen by the proxy (for IPv6, its /64 network); "" on this machine.

    The server listens on loopback only, so the peer's address is always this machine's. A proxy or tunnel in front of
    it appends the client's to ``X-Forwarded-For``. Without that header, all participants would share one limit.
    """
    written = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return written[:100]
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
