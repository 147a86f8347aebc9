"""A local OpenAI-compatible server whose model judges by rules: what it answers depends on the request alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[str, bool], str]  # the prompt, and whether a picture was shown, to the answer


class JudgeServer(ThreadingHTTPServer):
    """``bodies`` has every request. ``fails``: how many of the next requests get status 500."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, reply: Reply) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.fails = reply, 0
        self.bodies: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> JudgeServer:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            failed = self.server.fails > 0
            self.server.fails -= failed
        content = body["messages"][-1]["content"]
        shown = isinstance(content, list)
        text = "".join(part.get("text", "") for part in content) if shown else content
        answer = {
            "choices": [{"index": 0, "message": {"content": self.server.reply(text, shown)}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 5},
        }
        data = b"overloaded" if failed else json.dumps(answer).encode()
        self.send_response(500 if failed else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def after(text: str, head: str) -> str:
    """What stands below a head of a prompt, up to the next blank line."""
    return text.partition(head)[2].strip().partition("\n\n")[0]


def numbered(block: str) -> list[str]:
    """The texts of "1. one", "2. two"."""
    return re.findall(r"^\d+\. (.*)$", block, re.MULTILINE)
