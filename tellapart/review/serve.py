"""The server of the review page: on the loopback address, until Ctrl-C."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.review.session import Review

LOOPBACK = "127.0.0.1"


def need_extra() -> None:
    """Raise `MissingExtra` where the web framework is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("review", "the review page") from None


def bind(port: int) -> socket.socket:
    """A socket on the loopback address; port 0 takes any that is free. Raises `TellapartError` where it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise TellapartError(
                f"port {port} is taken, perhaps by a review that is open already: look at http://{LOOPBACK}:{port}/, "
                "or type --port 0 for a free one"
            ) from None
        raise UsageError(f"--port {port}: {error.strerror or error}; type --port 0 for a free one") from None
    except OverflowError:
        listener.close()
        raise UsageError(f"--port {port}: expected 0 to 65535") from None
    return listener


def server_of(review: Review, listener: socket.socket) -> Any:
    """A uvicorn server of the page; ``run(sockets=[listener])`` serves until ``should_exit``."""
    import uvicorn

    from tellapart.review.app import create_app

    config = uvicorn.Config(
        create_app(review, listener.getsockname()[1]),
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


def serve(review: Review, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C. ``ready`` is called with the address first."""
    server = server_of(review, listener)
    ready(f"http://{LOOPBACK}:{listener.getsockname()[1]}/")
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn hands it on once it has shut down
        pass
    finally:
        listener.close()
        review.store.close()
