"""Serves a page's own files, and the files that all pages share."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def part_routes(package: str) -> list[Route]:
    """Returns the routes of the page whose files are in ``package``.

    ``/`` serves the shared HTML head followed by ``page.html``, which begins with the title.
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
        kind = CONTENT_TYPES["." + read[0].name.rpartition(".")[2]]
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})

    return [Route(path, part) for path in parts]
