"""The part of the Hugging Face hub's HTTP interface that an upload and a download need, on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_the_test"
COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    """``files``: what the repositories hold, by ``USER/NAME`` and path. Writing needs `TOKEN`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.private: dict[str, Any] = {}
        self.cards: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def hub() -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, value: Any = None, status: int = 200, **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    @property
    def known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        if path == "api/whoami-v2":
            return self.answer({"name": "me"}) if self.known else self.answer({"error": "Invalid token"}, 401)
        repository, resolve, file = path.partition("/resolve/")
        content = self.server.files.get(repository, {}).get(file.partition("/")[2]) if resolve else None
        if content is None:
            return self.answer({"error": "no such entry"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self.answer(content, ETag=etag, X_Repo_Commit=COMMIT)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.server.large[self.path.rpartition("/")[2]] = self.body()
        self.answer({})

    def do_POST(self) -> None:
        body, path = self.body(), self.path.partition("?")[0].strip("/")
        if path == "api/validate-yaml":
            self.server.cards.append(json.loads(body)["content"])
            return self.answer({"errors": [], "warnings": []})
        if not self.known:
            return self.answer({"error": "Invalid token"}, 401)
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.files.setdefault(name, {})
            self.server.private[name] = asked.get("private", asked.get("visibility") == "private" or None)
            return self.answer({"url": f"{self.server.address}/{name}", "name": name})
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{self.server.address}/lfs/{each['oid']}"}}
            return self.answer({"transfer": "basic", "objects": objects})
        bare = path.removeprefix("api/models/").removeprefix("api/datasets/")
        repository = bare.rpartition("/")[0].rpartition("/")[0]
        if "/preupload/" in path:
            files = [each["path"] for each in json.loads(body)["files"]]
            modes = {file: "lfs" if file.endswith(".safetensors") else "regular" for file in files}
            return self.answer(
                {"files": [{"path": f, "uploadMode": m, "shouldIgnore": False} for f, m in modes.items()]}
            )
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.server.files[repository][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.server.files[repository][value["path"]] = self.server.large[value["oid"]]
            address = f"{self.server.address}/{repository}/commit/{COMMIT}"
            return self.answer({"success": True, "commitOid": COMMIT, "commitUrl": address})
        return self.answer({"error": path}, 404)
