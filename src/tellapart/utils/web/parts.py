"""The files of a page: its own ``page.html``, ``page.css`` and ``page.js``, and what all pages share."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def part_routes(package: str) -> list[Route]:
    """The routes of the page whose own files are in ``package``.

    ``/`` is the shared head, followed by ``page.html``, which begins with the title.
    """
    ours, its = files("tellapart.utils.web"), files(package)
    parts = {
        "/": [ours / "head.html", its / "page.html"],
        "/base.css": [ours / "base.css"],
        "/base.js": [ours / "base.js"],
        "/page.css": [its / "page.css"],
        "/page.js": [its / "page.js"],
    }

    def part(request: Request) -> Response:
        read = parts[request.url.path]
        text = "".join(file.read_text(encoding="utf-8") for file in read)
        kind = KINDS["." + read[0].name.rpartition(".")[2]]
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})

    return [Route(path, part) for path in parts]
