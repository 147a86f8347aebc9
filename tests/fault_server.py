"""An OpenAI-compatible server that fails at random: it hangs, drops connections, answers 429 and 500, half a JSON, or
JSON of another form. What it answers depends on the request alone; it counts what it was asked and delivered.
It may also refuse fields as OpenAI's newer models do, and never come to the end of its headers."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from local_server import LocalServer

KINDS = ("drop", "429", "500", "503", "half", "schema", "no json", "slow start")
WRONG = ({}, {"choices": []}, {"choices": [{"message": {"content": 7}}]}, {"error": "overloaded"}, [1], None)


class FaultServer(LocalServer):
    """``rate`` of the requests fail; of these ``hang`` by saying nothing for ``hang_seconds``.

    ``epoch`` is set by the test; ``asked`` and ``delivered`` map the hash of a request to the epochs in which it came
    in and in which its whole answer was written. Every ``refuses``-th distinct question is refused at first sight.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, rate: float = 0.0, hang: float = 0.05, hang_seconds: float = 4.0, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rate, self.hang, self.hang_seconds = rate, hang, hang_seconds
        self.delay, self.refuses, self.epoch, self.active = 0.0, 20, 0, 0
        self.chance, self.lock = random.Random(seed), threading.Lock()
        self.asked: dict[str, list[int]] = {}
        self.delivered: dict[str, list[int]] = {}
        self.faults = 0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.keep_bodies = False
        self.says: Callable[[bytes], str] | None = None  # another text than `text_of`, by the request
        self.unsupported: tuple[str, ...] = ()  # fields that are refused by name, the first that is there
        self.trickle = b""  # sent again and again in place of a status line
        self.finish: str | None = "stop"  # why every answer ends
        self.status = 200  # not 200: every request is refused with it
        self.errors: Callable[[bytes], tuple[int, Any] | None] = lambda body: None  # status and body of one request

    def settle(self) -> None:
        """Wait until nothing is being answered any more."""
        calm = 0
        while calm < 5:
            time.sleep(0.05)
            calm = calm + 1 if self.active == 0 else 0

    def fault(self) -> str | None:
        with self.lock:
            if self.chance.random() >= self.rate:
                return None
            self.faults += 1
            return "hang" if self.chance.random() < self.hang else self.chance.choice(KINDS)


def digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=6).hexdigest()


def text_of(body: bytes, refuses: int) -> str:
    """A caption that names the request, or now and then a refusal."""
    name = digest(body)
    if int(name, 16) % refuses == 0:
        return f"I'm sorry, but I cannot do that ({name})."
    return f"A dog that is called {name} is on the lawn with a red ball in the sun."


def unsupported(field: str) -> dict[str, str]:
    """OpenAI's error about a field that a model does not take."""
    instead = " Use 'max_completion_tokens' instead." if field == "max_tokens" else ""
    message = f"Unsupported parameter: '{field}' is not supported with this model.{instead}"
    return {"message": message, "type": "invalid_request_error", "param": field, "code": "unsupported_parameter"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    server: FaultServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(length := int(self.headers["Content-Length"]))
        if len(body) < length:  # a client that was killed while it asked
            return
        server, name = self.server, digest(body)
        with server.lock:
            server.active += 1
            epoch = server.epoch
            server.asked.setdefault(name, []).append(epoch)
            if server.keep_bodies:
                server.bodies.append(json.loads(body))
                server.headers.append({name.title(): value for name, value in self.headers.items()})
        try:
            time.sleep(server.delay)
            while server.trickle:
                self.wfile.write(server.trickle)
                time.sleep(0.05)
            fault = server.fault()
            if fault is None:
                self._answer(body)
                with server.lock:
                    server.delivered.setdefault(name, []).append(epoch)
            else:
                self._fail(fault, body)
        finally:
            with server.lock:
                server.active -= 1

    def _answer(self, body: bytes) -> None:
        if self.server.status != 200:
            self._send(self.server.status, b'{"error": {"message": "no such model"}}')
            return
        if error := self.server.errors(body):
            self._send(error[0], json.dumps(error[1]).encode())
            return
        for field in self.server.unsupported:
            if field in json.loads(body):
                self._send(400, json.dumps({"error": unsupported(field)}).encode())
                return
        text = self.server.says(body) if self.server.says else text_of(body, self.server.refuses)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": self.server.finish}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        self._send(200, json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode())

    def _fail(self, kind: str, body: bytes) -> None:
        if kind == "hang":
            time.sleep(self.server.hang_seconds)
            self._drop()
        elif kind == "drop":
            self._drop()
        elif kind == "half":
            self.send_response(200)
            self.send_header("Content-Length", "500")
            self.end_headers()
            self.wfile.write(b'{"choices": [{"message": {"role": "assistant", "content": "A dog th')
            self._drop()
        elif kind == "schema":
            self._send(200, json.dumps(self.server.chance.choice(WRONG)).encode())
        elif kind == "no json":
            self._send(200, b"<html><body>Bad gateway</body></html>")
        elif kind == "slow start":
            self._send(503, b'{"error": {"message": "loading"}}', {"Retry-After": "0"})
        elif kind == "429":
            self._send(429, b'{"error": {"message": "slower, please"}}', {"Retry-After": "0.05"})
        else:
            self._send(int(kind), b'{"error": {"message": "out of order"}}')

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
