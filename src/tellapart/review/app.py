"""Application and server for a review page.

Requests contain numbers and fixed words, never paths. Only browsers on this machine can use the page. A request must
name this host (protection against DNS rebinding), and a request that changes something must come from this page
(Origin), with a token that only this page can read.
"""

from __future__ import annotations

import functools
import secrets
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.review.thumbnails import thumbnail
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.web.origins import SameOrigin, own_origins
from tellapart.utils.web.page_files import part_routes
from tellapart.utils.web.pictures import encode_picture
from tellapart.utils.web.requests import LARGEST_POST, path_number, read_body
from tellapart.utils.web.server import bind, serve

TOKEN = "x-review-token"
LONGEST_SIDE = 1400  # pixels of a picture's longer side
PICTURES_IN_MEMORY, THUMBNAILS_IN_MEMORY = 64, 512


@dataclass(frozen=True)
class Page:
    """A review page, with pictures numbered from 0.

    package: the package with page.html, page.css and page.js.
    gets: functions that answer GET requests, by path. ``/api/state`` returns everything that the page shows but pixels.
    posts: functions that answer POST requests, given the JSON object in the body, by path.
    errors: responses to errors that need more than a one-line message.
    """

    package: str
    items: Sequence[Item]
    gets: Mapping[str, Callable[[Request], Any]]
    posts: Mapping[str, Callable[[dict[str, Any]], Any]]
    largest_post: int = LARGEST_POST  # bytes
    errors: Mapping[Any, Callable[[Request, Exception], Response]] = field(default_factory=dict)


def create_app(page: Page, port: int) -> ASGIApp:
    """Creates the application for a server that listens on the loopback address at ``port``."""
    token = secrets.token_urlsafe(32)

    def got(path: str) -> Callable[[Request], Response]:
        shared = {"token": token} if path == "/api/state" else None

        def answer(request: Request) -> Response:
            result = page.gets[path](request)
            return JSONResponse(shared | result if shared else result, headers={"Cache-Control": "no-store"})

        return answer

    def pixels(encode: Callable[[int], tuple[bytes, str]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                data, kind = encode(path_number(request, len(page.items), "picture"))
            except PictureError as error:
                return PlainTextResponse(str(error), status_code=410)
            return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

        return answer

    def posted(path: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            body = await read_body(request, page.largest_post)
            return JSONResponse(await run_in_threadpool(page.posts[path], body))

        return answer

    @functools.lru_cache(PICTURES_IN_MEMORY)
    def large(number: int) -> tuple[bytes, str]:
        return encode_picture(page.items[number].picture.image(), LONGEST_SIDE)

    @functools.lru_cache(THUMBNAILS_IN_MEMORY)
    def small(number: int) -> tuple[bytes, str]:
        return thumbnail(page.items[number].picture)

    routes = [
        *part_routes(page.package),
        *(Route(path, got(path)) for path in page.gets),
        Route("/pictures/{number}", pixels(large)),
        Route("/thumbnails/{number}", pixels(small)),
        *(Route(path, posted(path), methods=["POST"]) for path in page.posts),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response, **page.errors})
    return SameOrigin(GZipMiddleware(app, minimum_size=10_000, compresslevel=1), own_origins(port), (TOKEN, token))


def error_response(_: Request, error: Exception) -> Response:
    """Returns an error as a JSON response with a one-line message."""
    return JSONResponse({"error": str(error)}, status_code=400 if isinstance(error, UsageError) else 500)


def serve_page(page: Page, port: int, what: str, saved: str = "", *, open_page: bool = False) -> None:
    """Serves the page until Ctrl-C. First prints what is reviewed, the page's address, and where reviews are saved.

    ``open_page``: whether to also open the page in this machine's browser.
    """
    listener = bind(port)

    def ready(address: str) -> None:
        say(f"{what}; review them at {address} (press Ctrl-C to stop{saved})")
        if open_page:
            webbrowser.open(address)

    serve(create_app(page, listener.getsockname()[1]), listener, ready)
