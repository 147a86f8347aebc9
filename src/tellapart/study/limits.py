"""Limits how many participants may start from a network address, so that nobody can fill the study alone."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from tellapart.errors import TellapartError
from tellapart.utils.messages import say

HOUR = 3600.0


class TooManyStarts(TellapartError):
    """Raised if too many participants have started from an address."""


class StartLimit:
    """Counts the starts from each address in the last hour. Addresses are kept in memory and never written to a file.

    clock: returns seconds since 1970.
    proxied: whether the server is behind a proxy. If it is, a start without an address means that the proxy is
    misconfigured.
    """

    def __init__(self, clock: Callable[[], float], proxied: bool = False) -> None:
        self._clock, self._proxied = clock, proxied
        self._starts: dict[str, list[float]] = {}

    def count(self, address: str, most: int) -> None:
        """Counts a start. Raises `TooManyStarts` if there were already ``most`` starts from this address in the last
        hour. There is no limit if ``address`` is "" or ``most`` is 0.
        """
        if most and not address and self._proxied:
            self._proxied = False  # so that the message is printed only once
            say(
                "starts_per_address has no effect, because the reverse proxy sends no "
                "X-Forwarded-For header; configure it to send the client's address"
            )
        if most and address:
            now = self._clock()
            recent = [start for start in self._starts.get(address, []) if start > now - HOUR]
            if len(recent) >= most:
                raise TooManyStarts("too many participants have begun from your network; please try again in an hour")
            self._starts[address] = [*recent, now]


def client_address(forwarded_for: str) -> str:
    """Returns the client's address as seen by the proxy. For IPv6, returns the /64 network. Returns "" for a client on
    this machine.

    The server listens on the loopback interface only, so the peer's address is always that of this machine. A proxy or
    tunnel in front of the server appends the client's address to ``X-Forwarded-For``. Without this header, all
    participants would share one limit.
    """
    last = forwarded_for.rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(last)
    except ValueError:
        return last[:100]
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else last
