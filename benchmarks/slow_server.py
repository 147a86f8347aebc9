"""An OpenAI-compatible server that takes a fixed time for every answer. ``python -m … SECONDS`` prints its port."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seconds = 0.2

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        due = time.monotonic() + self.seconds
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = hashlib.blake2b(body, digest_size=6).hexdigest()
        text = f"A dog that is called {name} is on the lawn with a red ball in the sun."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 18, "total_tokens": 118}
        reply = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        time.sleep(max(0.0, due - time.monotonic()))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(reply)}\r\n\r\n"
        self.wfile.write(head.encode() + reply)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    _Handler.seconds = float(sys.argv[1])
    with _Server(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
