"""Bags of pictures of the synthetic world, and a real server of their review in a thread."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from page_server import serving_page

from tellapart.bags.file import Bag, BagsFile, Header, write_bags
from tellapart.review.bags.requests import bags_page
from tellapart.review.bags.session import BagReview
from tellapart.scenes import Scenes

ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BAGS = (("a.png", "b.png"), ("c.png", "d.png"), ("e.png", "f.png"), ("a.png", "c.png", "e.png"))


def make_bags(folder: Path) -> Path:
    """Six pictures, captions beside them (one hostile), and four bags in ``bags.jsonl``."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    (folder / "secret.txt").write_text("not for you")
    (pictures / "unused.png").write_bytes(b"in no bag")
    for name, scene in zip("abcdef", Scenes(6), strict=True):
        scene.image().save(pictures / f"{name}.png")
        (pictures / f"{name}.txt").write_text(ATTACK if name == "a" else "\n".join(scene.references))
    bags = [Bag(ids, 0.9 - place / 10) for place, ids in enumerate(BAGS)]
    write_bags(folder / "bags.jsonl", BagsFile(Header(scorer="tiny", data=str(pictures), sizes=(2, 3)), bags))
    return folder / "bags.jsonl"


def serving(review: BagReview, port: int = 0) -> AbstractContextManager[int]:
    """The port of a server that runs until the block is left."""
    return serving_page(bags_page(review), port)


class Client:
    """Plain HTTP, so that every header is the test's own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.origin = f"http://127.0.0.1:{port}"
        self.token = json.loads(self.get("/api/state")[2])["token"]

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {
            "Host": f"127.0.0.1:{self.port}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if body is not None:
            headers["Content-Length"] = str(len(body))
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value), "", ""]
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            # At once: a server that refuses the head closes, and a body that comes later would reset the connection.
            connection.sendall("\r\n".join(head).encode("latin-1") + (body or b""))
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        return found

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        own = {"Origin": self.origin, "X_Review_Token": self.token, **headers}
        status, _, data = self.ask("POST", path, json.dumps(body).encode(), **own)
        return status, json.loads(data)

    def decide(
        self, reviewer: str, bag: int, verdict: str, replaces: int | None = None, **more: Any
    ) -> tuple[int, Any]:
        body = {"reviewer": reviewer, "bag": bag, "verdict": verdict, "facets": [], "note": "", "replaces": replaces}
        return self.post("/api/decisions", {**body, **more})
