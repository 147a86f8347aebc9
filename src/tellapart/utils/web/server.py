"""A server on the loopback address, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tellapart.errors import MissingExtra, TellapartError, UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"


def need_extra(extra: str, what: str) -> None:
    """Raises `MissingExtra` where the web framework is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra(extra, what) from None


def bind(port: int) -> socket.socket:
    """Returns a socket on the loopback address; port 0 takes any that is free. Raises `TellapartError` where it is
    taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TellapartError(
                f"port {port} is taken, perhaps by a review or a study that is open already: look at "
                f"http://{LOOPBACK}:{port}/, or type --port 0 for a free one"
            ) from None
        raise UsageError(f"--port {port}: {error.strerror or error}; type --port 0 for a free one") from None
    except OverflowError:
        listener.close()
        raise UsageError(f"--port {port}: expected 0 to 65535") from None
    return listener


def server_of(app: ASGIApp) -> Any:
    """Returns a uvicorn server of a page; ``run(sockets=[listener])`` serves until ``should_exit``. Logs no request."""
    import uvicorn

    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves a page until Ctrl-C. ``ready`` is called with the address first."""
    server = server_of(app)
    ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn hands it on once it has shut down
        pass
    finally:
        listener.close()
