"""The endpoint of ``tellapart serve``, in a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tellapart.inference.endpoint import create_app
from tellapart.inference.service import Service
from tellapart.utils.web.server import bind, server_of


@contextlib.contextmanager
def served(service: Service) -> Iterator[str]:
    """Serves at a free port of this machine; yields the address, ``http://127.0.0.1:PORT``."""
    listener = bind(0)
    port = listener.getsockname()[1]
    server = server_of(create_app(service, port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
    listener.close()
