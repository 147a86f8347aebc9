"""A page's server that runs in a thread while a test talks to it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tellapart.review.app import Page, create_app
from tellapart.utils.web.server import bind, server_of


@contextmanager
def running(server: Any, listener: socket.socket) -> Iterator[int]:
    """Yields the port of a uvicorn server, which runs until the block is left."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@contextmanager
def serving_page(page: Page, port: int = 0) -> Iterator[int]:
    """Yields the port of a server of a review page, which runs until the block is left."""
    listener = bind(port)
    with running(server_of(create_app(page, listener.getsockname()[1])), listener) as served:
        yield served
