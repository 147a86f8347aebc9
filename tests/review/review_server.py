"""A folder of scenes with captions, and a real server of their review in a thread."""

from __future__ import annotations

import http.client
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from page_server import serving_page

from tellapart.review.requests import captions_page
from tellapart.review.session import ReviewSession
from tellapart.scenes import Scenes

ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def make_folder(folder: Path, count: int = 12) -> Path:
    """Pictures with texts beside them: one hostile, two shared, tags, and the last two without any."""
    folder.mkdir(parents=True)
    (folder.parent / "secret.txt").write_text("not for you")
    for number, scene in enumerate(Scenes(count, split="test", seed=3)):
        scene.image().resize((96, 64)).save(folder / f"{number:02}.jpg")
        text = ATTACK if number == 0 else "a shape" if number in (1, 2) else f"dog, red ball, {scene.references[0]}"
        if number < count - 2:
            (folder / f"{number:02}.txt").write_text(text + "\n")
    return folder


def serving(session: ReviewSession) -> AbstractContextManager[int]:
    """The port of a server that runs until the block is left."""
    return serving_page(captions_page(session))


class Client:
    """Plain HTTP, so that every header is the test's own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.state = self.get("/api/state")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def get(self, path: str) -> Any:
        status, _, data = self.ask("GET", path)
        assert status == 200, data
        return json.loads(data)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        own = {"Origin": f"http://127.0.0.1:{self.port}", "X_Review_Token": self.state["token"], **headers}
        status, _, data = self.ask("POST", path, body, **own)
        return status, json.loads(data)

    def write(self, number: int, version: str | None = None, **fields: Any) -> tuple[int, Any]:
        edit = {**fields, "version": self.state["rows"][number]["version"] if version is None else version}
        status, reply = self.post("/api/write", {"edits": {number: edit}, "what": "edit"})
        for key, row in reply.get("rows", {}).items():
            self.state["rows"][int(key)] = row
        return status, reply
