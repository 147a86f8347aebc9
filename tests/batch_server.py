"""Batch endpoints as OpenAI's and Anthropic's servers have them: files, batches that take time, failures, expiry."""

from __future__ import annotations

import email.parser
import email.policy
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from local_server import LocalServer

OPENAI_KEY, ANTHROPIC_KEY = "sk-test-1234567890", "sk-ant-test-1234567890"
Says = Callable[
    [str, dict[str, Any]], Any
]  # by the id and the body of a request: a text, a status with an error, or None


class BatchServer(LocalServer):
    """Answers a batch after ``polls`` requests for its state.

    says: the answer to one request: texts (one per choice), a pair of status and message, or None: it expires.
    refuses: why every batch is refused (OpenAI validates after creating it).
    fails: statuses of the next replies, whatever is asked; 200 answers the request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says: Says = lambda key, body: ["A dog."] * body.get("n", 1)
        self.polls, self.refuses, self.fails = 2, "", list[int]()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.lock = threading.Lock()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The bodies of all requests of all batches."""
        return [body for batch in self.batches.values() for _, body in batch["lines"]]

    def create(self, lines: list[tuple[str, dict[str, Any]]]) -> str:
        name = f"batch_{len(self.batches)}"
        self.batches[name] = {"lines": lines, "polls": self.polls}
        return name

    def poll(self, name: str) -> bool:
        """Whether a batch has ended."""
        batch = self.batches[name]
        batch["polls"] -= 1
        return bool(batch["polls"] < 0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BatchServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self._route(body)

    def do_GET(self) -> None:
        with self.server.lock:
            self._route(b"")

    def _route(self, body: bytes) -> None:
        server = self.server
        server.requests.append(f"{self.command} {self.path}")
        if (status := server.fails.pop(0) if server.fails else 200) != 200:
            self._send(status, {"error": {"message": "overloaded"}})
        elif self.path.startswith("/v1/messages"):
            self._anthropic(body)
        elif self.headers.get("Authorization") != f"Bearer {OPENAI_KEY}":
            self._send(401, {"error": {"message": f"Incorrect API key provided: {self.headers.get('Authorization')}"}})
        else:
            self._openai(body)

    def _openai(self, body: bytes) -> None:
        server = self.server
        if self.path == "/v1/files" and self.command == "POST":
            head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
            parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
            fields = {part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
                      for part in parts.iter_parts()}  # type: ignore[attr-defined]  # fmt: skip
            assert fields["purpose"] == b"batch"
            name = f"file-{len(server.files)}"
            server.files[name] = fields["file"]  # type: ignore[assignment]
            self._send(200, {"id": name, "object": "file", "purpose": "batch"})
        elif self.path == "/v1/batches" and self.command == "POST":
            asked = json.loads(body)
            assert (asked["endpoint"], asked["completion_window"]) == ("/v1/chat/completions", "24h")
            lines = [json.loads(line) for line in server.files[asked["input_file_id"]].splitlines()]
            assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
            assert len({line["custom_id"] for line in lines}) == len(lines)
            name = server.create([(line["custom_id"], line["body"]) for line in lines])
            self._send(200, self._batch(name, "validating"))
        elif match := re.fullmatch(r"/v1/batches/(\w+)", self.path):
            name = match[1]
            if server.refuses:
                self._send(200, self._batch(name, "failed") | {"errors": {"data": [{"message": server.refuses}]}})
            elif not server.poll(name):
                self._send(200, self._batch(name, "in_progress"))
            else:
                self._send(200, self._ended(name))
        elif match := re.fullmatch(r"/v1/files/([\w-]+)/content", self.path):
            self._send_bytes(200, server.files[match[1]])
        else:
            self._send(404, {"error": {"message": f"no path {self.path}"}})

    def _batch(self, name: str, status: str) -> dict[str, Any]:
        total = len(self.server.batches[name]["lines"])
        counts = {"total": total, "completed": 0, "failed": 0}
        return {"id": name, "object": "batch", "status": status, "request_counts": counts}

    def _ended(self, name: str) -> dict[str, Any]:
        """Writes the output and the error file, in another order than the requests."""
        good, bad, expired = [], [], False
        for key, body in reversed(self.server.batches[name]["lines"]):
            says = self.server.says(key, body)
            if says is None:
                expired = True
                error = {"code": "batch_expired", "message": "This request could not be executed before it expired."}
                bad.append({"custom_id": key, "response": None, "error": error})
            elif isinstance(says, tuple):
                reply = {"status_code": says[0], "body": {"error": {"message": says[1]}}}
                bad.append({"custom_id": key, "response": reply, "error": None})
            else:
                choices = [{"index": n, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                           for n, text in enumerate(says)]  # fmt: skip
                usage = {"prompt_tokens": 100, "completion_tokens": 10}
                reply = {"status_code": 200, "body": {"choices": choices, "usage": usage}}
                good.append({"custom_id": key, "response": reply, "error": None})
        result = self._batch(name, "expired" if expired else "completed")
        result["request_counts"] |= {"completed": len(good), "failed": len(bad)}
        for field, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                result[field] = f"file-{name}-{field}"
                self.server.files[result[field]] = "".join(json.dumps(line) + "\n" for line in lines).encode()
        return result

    def _anthropic(self, body: bytes) -> None:
        server = self.server
        if self.headers.get("x-api-key") != ANTHROPIC_KEY or self.headers.get("anthropic-version") != "2023-06-01":
            self._send(
                401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
            )
        elif self.path == "/v1/messages/batches" and self.command == "POST":
            requests = json.loads(body)["requests"]
            assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one["custom_id"]) for one in requests)
            name = server.create([(one["custom_id"], one["params"]) for one in requests])
            self._send(200, self._message_batch(name, "in_progress"))
        elif match := re.fullmatch(r"/v1/messages/batches/(\w+)", self.path):
            ended = server.poll(match[1])
            self._send(200, self._message_batch(match[1], "ended" if ended else "in_progress"))
        elif match := re.fullmatch(r"/v1/messages/batches/(\w+)/results", self.path):
            lines = [{"custom_id": key, "result": self._message(server.says(key, body))}
                     for key, body in reversed(server.batches[match[1]]["lines"])]  # fmt: skip
            self._send_bytes(200, "".join(json.dumps(line) + "\n" for line in lines).encode())
        else:
            self._send(404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}})

    def _message_batch(self, name: str, status: str) -> dict[str, Any]:
        total = len(self.server.batches[name]["lines"])
        counts = {"processing": 0 if status == "ended" else total, "succeeded": total if status == "ended" else 0}
        return {"id": name, "type": "message_batch", "processing_status": status,
                "request_counts": counts | {"errored": 0, "canceled": 0, "expired": 0}}  # fmt: skip

    @staticmethod
    def _message(says: Any) -> dict[str, Any]:
        if says is None:
            return {"type": "expired"}
        if isinstance(says, tuple):
            return {"type": "errored", "error": {"type": "error", "error": {"type": "invalid", "message": says[1]}}}
        content = [{"type": "text", "text": says[0]}]
        usage = {"input_tokens": 100, "output_tokens": 10}
        return {"type": "succeeded", "message": {"content": content, "stop_reason": "end_turn", "usage": usage}}

    def _send(self, status: int, value: Any) -> None:
        self._send_bytes(status, json.dumps(value).encode())

    def _send_bytes(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
