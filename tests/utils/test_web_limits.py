"""A page's server under clients that open connections and send nothing, without descriptors, and when it is stopped."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tellapart.utils.web import server

PROGRAM = """
import resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tellapart.utils.web.server import bind, serve
slow = lambda request: (time.sleep(20), PlainTextResponse("late"))[1]
app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here")), Route("/slow", slow)])
listener = bind(0)
serve(app, listener, lambda address: print(listener.getsockname()[1], flush=True))
"""


@contextlib.contextmanager
def program() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of 96 descriptors, and its port."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_idle_connections_leave_room_and_few_lines() -> None:
    with program() as (process, port):
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
        time.sleep(2)
        for one in idle:
            one.close()
        deadline, status = time.monotonic() + 10, 0
        while status != 200 and time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
                client.request("GET", "/")
                status = client.getresponse().status
        assert status == 200
        process.terminate()
        assert process.stderr is not None and len(process.stderr.read().splitlines()) <= 2


def test_a_server_that_is_stopped_answers_503_and_says_one_line() -> None:
    with program() as (process, port):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
        client.request("GET", "/slow")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        answer = client.getresponse()
        assert answer.status == 503 and answer.getheader("Retry-After") and b"is shutting down" in answer.read()
        assert process.stderr is not None and len(process.stderr.read().splitlines()) <= 1
        assert process.wait(10) != 0


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"]
)
def test_a_connection_without_a_whole_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3, raising=False)

    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    listener = server.bind(0)
    running = server.server_of(Starlette(routes=[Route("/", read, methods=["GET", "POST"])]))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        with socket.create_connection(listener.getsockname(), timeout=4) as client:
            client.sendall(sent)
            while client.recv(1000):  # a time-out is an error
                pass
    finally:
        running.should_exit = True
        thread.join(10)
