"""Serves pages: request checks and limits, the pages' files, pictures, and a loopback server.

Every request must name one of the page's own hosts (protection against DNS rebinding), and requests that change
something must come from the page itself (Origin).
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import resource
import secrets
import socket
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any

import h11
import uvicorn
from PIL import Image
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.messages import say

LOOPBACK = "127.0.0.1"
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

    token: a header, and the value that it must have in every request that changes something; None: no token.
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


LARGEST_POST = 64 * 1024  # bytes


async def read_body(request: Request, most: int = LARGEST_POST) -> dict[str, Any]:
    """Reads the JSON object in a POST body. Raises `UsageError` for anything else and for more than ``most`` bytes."""
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise UsageError(f"the request exceeds {most:,} bytes")
    except ClientDisconnect:
        raise UsageError("the connection was closed before the whole request arrived") from None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UsageError("expected a JSON object")
    return body


def want(body: dict[str, Any], name: str, kind: type) -> Any:
    """Returns a field of the body. Raises `UsageError` if it does not have the expected type."""
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 1 << 63):
        raise UsageError(f"{name}: expected {kind.__name__}, got {json.dumps(value)[:80]}")
    return value


def within(number: int, count: int, what: str) -> int:
    """Returns the number. Raises `UsageError` if it is not in 0..count − 1."""
    if not 0 <= number < count:
        raise UsageError(f"no {what} {number}; there are {count:,}, numbered from 0")
    return number


def path_number(request: Request, count: int, what: str) -> int:
    """Returns the ``number`` in a request's path. Raises a 404 if it is not in 0..count − 1."""
    text = request.path_params["number"]
    if not (text.isascii() and text.isdecimal()) or len(text) > 18 or int(text) >= count:
        raise HTTPException(404, f"no such {what}; there are {count:,}, numbered from 0")
    return int(text)


CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def part_routes(package: str) -> list[Route]:
    """Returns the routes of the page whose files are in ``package``.

    ``/`` serves the shared HTML head followed by ``page.html``, which begins with the title.
    """
    ours, its = files("tellapart.utils.web"), files(package)
    parts = {
        "/": [ours / "head.html", its / "page.html"],
        "/base.css": [ours / "base.css"],
        "/base.js": [ours / "base.js"],
        "/page.css": [its / "page.css"],
        "/page.js": [its / "page.js"],
    }

    def part(request: Request) -> Response:
        read = parts[request.url.path]
        text = "".join(file.read_text(encoding="utf-8") for file in read)
        kind = CONTENT_TYPES["." + read[0].name.rpartition(".")[2]]
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})

    return [Route(path, part) for path in parts]


LOSSLESS_SIDE = 256  # pixels; smaller pictures are sent losslessly as PNG


def encode_picture(image: Image.Image, longest: int) -> tuple[bytes, str]:
    """Resizes a picture in place to at most ``longest`` pixels per side; returns its encoded bytes and media type."""

    small = max(image.size) < LOSSLESS_SIDE
    image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 90}))
    return buffer.getvalue(), "image/png" if small else "image/jpeg"


def bind(port: int) -> socket.socket:
    """Opens a socket on the loopback address; port 0: any free port. Raises `TellapartError` if the port is in use.

    Sets the protocol explicitly, because asyncio sets TCP_NODELAY only for TCP. Without it a connection's second
    request waits 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TellapartError(
                f"port {port} is already in use, perhaps by an open review or study: see http://{LOOPBACK}:{port}/, "
                "or use --port 0 for a free port"
            ) from None
        raise UsageError(f"--port {port}: {error.strerror or error}; use --port 0 for a free port") from None
    except OverflowError:
        listener.close()
        raise UsageError(f"--port {port}: expected 0 to 65535") from None
    return listener


MAX_CONNECTIONS = 512
REQUEST_SECONDS = 30.0  # a connection without a complete request for this long is closed


class _Protocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on idle clients; uvicorn itself limits only answered requests.

    Rejects connections beyond the server's limit immediately. Closes a connection on which no request is completed
    within `REQUEST_SECONDS`, at the latest after twice that time.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency and len(self.connections) > self.limit_concurrency:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\r\n")
            transport.close()
        else:
            self._close_if_waiting(None)

    def _close_if_waiting(self, before: tuple[Any, Any] | None) -> None:
        if self.transport.is_closing():
            return
        state = self.conn.their_state
        waiting = (state, self.cycle) if state in (h11.IDLE, h11.SEND_BODY) else None
        if waiting is not None and waiting == before:
            self.transport.close()
        else:
            self.loop.call_later(REQUEST_SECONDS, self._close_if_waiting, waiting)


class _Server(uvicorn.Server):
    """uvicorn's server; also reports exhausted file descriptors once, and lets cancelled requests send a response."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        told = False

        def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            nonlocal told
            error = context.get("exception")
            if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
                loop.default_exception_handler(context)
            elif not told:
                told = True
                say("out of file descriptors, so new connections have to wait; increase the limit with ulimit -n")

        asyncio.get_running_loop().set_exception_handler(report)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.server_state.tasks:  # so that cancelled requests respond before the process ends
            await asyncio.wait(self.server_state.tasks, timeout=1)


def _closing(app: ASGIApp) -> ASGIApp:
    """Wraps the application so that requests that are cut off by a shutdown are answered with 503."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, watched)
        except asyncio.CancelledError:
            if started:
                raise
            stopping = {"error": "the server is shutting down; try again later"}
            await JSONResponse(stopping, 503, headers={"Retry-After": "5", "Connection": "close"})(scope, receive, send)

    return answer


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Creates a uvicorn server without request logs; ``run(sockets=[listener])`` serves until ``should_exit``."""
    most = max(8, min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    config = uvicorn.Config(
        _closing(app),
        lifespan="off",
        ws="none",
        http=_Protocol,
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=most,
        backlog=most // 4,
        timeout_graceful_shutdown=2,
    )
    return _Server(config)


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves a page until Ctrl-C; first calls ``ready`` with the address."""
    server = server_of(app)
    ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn re-raises it after shutting down
        pass
    finally:
        listener.close()
