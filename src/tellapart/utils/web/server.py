"""Serves a page on the loopback address, with limits on connections and idle clients."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.messages import say

LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 512
REQUEST_SECONDS = 30.0  # a connection without a complete request for this long is closed


def bind(port: int) -> socket.socket:
    """Opens a socket on the loopback address (port 0: any free port). Raises `TellapartError` if the port is in use.

    Sets the protocol explicitly, because asyncio sets TCP_NODELAY only for TCP. Otherwise, a connection's second
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


class _Protocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on idle clients. uvicorn's own limit starts only after a response.

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
    """uvicorn's server, which also reports exhausted file descriptors once and lets cancelled requests respond."""

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
    """Serves a page until Ctrl-C. First calls ``ready`` with the address."""
    server = server_of(app)
    ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn re-raises it after shutting down
        pass
    finally:
        listener.close()
