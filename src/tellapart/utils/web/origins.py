"""Accepts requests only from a page's own addresses, and adds security headers to its responses.

Every request must name one of the page's own hosts (protection against DNS rebinding), and requests that change
something must come from the page itself (Origin).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def own_origins(port: int, public: str | None = None) -> frozenset[str]:
    """Returns the origins of a server on the loopback address, plus that of its public address if it has one."""
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
    if port == 80:
        hosts |= {"127.0.0.1", "localhost"}
    return frozenset({f"http://{host}" for host in hosts} | ({_as_origin(public)} if public else set()))


def _as_origin(url: str) -> str:
    """Formats an address as browsers send it in Origin: in lower case, without the default port."""
    scheme, _, host = url.rstrip("/").lower().partition("://")
    return f"{scheme}://{host.removesuffix(':443' if scheme == 'https' else ':80')}"


def with_headers(send: Send) -> Send:
    """Returns a function that sends responses with the security headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return send_with_headers


class SameOrigin:
    """Middleware that rejects requests from other origins and adds the security headers.

    token: a header, and the value that it must have in every request that changes something; None requires no token.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], token: tuple[str, str] | None = None) -> None:
        self.app, self.token, self.origins = app, token, frozenset(origins)
        self.hosts = {origin.partition("://")[2] for origin in self.origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        answer = self.app if refusal is None else JSONResponse({"error": refusal}, status_code=403)
        await answer(scope, receive, with_headers(send))

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            return "this page only accepts requests to its own address"
        if scope["method"] in ("GET", "HEAD"):
            return None
        if headers.get("origin", "") not in self.origins:
            return "request rejected: it comes from another site"
        if self.token is None:
            return None
        name, value = self.token
        if not secrets.compare_digest(headers.get(name, "").encode(), value.encode()):
            return "request rejected: invalid token; reload the page"
        return None
