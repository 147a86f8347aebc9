"""The server of the review page."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from tellapart.bags.review.session import Review
from tellapart.utils.web import server


def server_of(review: Review, listener: socket.socket) -> Any:
    """A uvicorn server of the page; ``run(sockets=[listener])`` serves until ``should_exit``."""
    from tellapart.bags.review.app import create_app

    return server.server_of(create_app(review, listener.getsockname()[1]))


def serve(review: Review, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C. ``ready`` is called with the address first."""
    from tellapart.bags.review.app import create_app

    try:
        server.serve(create_app(review, listener.getsockname()[1]), listener, ready)
    finally:
        review.store.close()
