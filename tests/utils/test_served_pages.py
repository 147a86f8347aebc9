"""The server of pages on this machine."""

from __future__ import annotations

import http.client
import statistics
import threading
import time

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tellapart.utils.web.server import LOOPBACK, bind, server_of


def test_a_second_request_of_a_connection_does_not_wait() -> None:
    """Issue: 44 ms each, for head and body of an answer were sent apart, by Nagle's rule, to a client that waits with
    its acknowledgement. The median: on a busy machine some take longer."""
    listener = bind(0)
    server = server_of(Starlette(routes=[Route("/", lambda _: PlainTextResponse("a page"))]))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    connection = http.client.HTTPConnection(LOOPBACK, listener.getsockname()[1], timeout=10)
    seconds = []
    for _ in range(21):
        started = time.perf_counter()
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"a page"
        seconds.append(time.perf_counter() - started)
    connection.close()
    server.should_exit = True
    thread.join(10)
    listener.close()
    assert statistics.median(seconds[1:]) < 0.03
