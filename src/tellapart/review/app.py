"""Routes and server of the review page.

As in `tellapart.bags.review.app`, the page serves only this machine's browser: requests refer to numbers, never to
paths, and requests that write must come from the page itself and carry a token that only the page can read.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.captions.store import Edit, StoredCaption
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.review.session import ReviewSession, Saved, prepending, replacing, stating, tagging
from tellapart.utils import web
from tellapart.utils.web import SameOrigin, own_origins, part_routes, path_number, read_body, want, within

TOKEN = "x-review-token"
LARGEST_BATCH = 4 << 20  # bytes: the numbers of all rows of a large folder


def create_app(session: ReviewSession, port: int) -> ASGIApp:
    """Returns the ASGI application, for a server on the loopback address at ``port``."""
    token = secrets.token_urlsafe(32)
    count = len(session.ids)

    def state(_: Request) -> Response:
        return JSONResponse({"token": token, **session.state()}, headers={"Cache-Control": "no-store"})

    def since(request: Request) -> Response:
        revision = request.query_params.get("revision", "")
        look = request.query_params.get("look") == "1"
        return JSONResponse(session.since(int(revision) if revision.isdecimal() else 0, look=look))

    def picture(request: Request) -> Response:
        number = path_number(request, count, "picture")
        try:
            small = request.url.path.startswith("/thumbnails/")
            data, kind = session.thumbnail(number) if small else session.picture(number)
        except PictureError as error:
            return PlainTextResponse(str(error), status_code=410)
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    def history(request: Request) -> Response:
        return JSONResponse(session.history(path_number(request, count, "picture")))

    def collisions(_: Request) -> Response:
        return JSONResponse(session.collisions())

    def posted(handle: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            body = await read_body(request, LARGEST_BATCH)
            result = await run_in_threadpool(handle, body)
            return JSONResponse(answer_of(session, result) if isinstance(result, Saved) else result)

        return answer

    def write(body: dict[str, Any]) -> Saved:
        edits = want(body, "edits", dict)
        if not all(key.isdecimal() and isinstance(value, dict) for key, value in edits.items()):
            raise UsageError("edits: expected an object that maps picture numbers to edits")
        rows = {within(int(key), count, "picture"): value for key, value in edits.items()}
        return session.write(rows, str(body.get("what") or "edit")[:40])

    def batch(body: dict[str, Any]) -> Saved:
        what = want(body, "what", str)
        return session.batch(numbers_in(body, count), what, batch_edit(what, body))

    def undo(body: dict[str, Any]) -> Saved:
        return session.undo(want(body, "change", str))

    def recaption(body: dict[str, Any]) -> Saved:
        return session.recaption(numbers_in(body, count))

    def look_alikes(body: dict[str, Any]) -> dict[str, Any]:
        return session.look_alikes(within(want(body, "number", int), count, "picture"), want(body, "text", str))

    posts = {"write": write, "batch": batch, "undo": undo, "recaption": recaption, "look-alikes": look_alikes}
    routes = [
        *part_routes("tellapart.review"),
        Route("/api/state", state),
        Route("/api/since", since),
        Route("/api/collisions", collisions),
        Route("/api/history/{number}", history),
        Route("/thumbnails/{number}", picture),
        Route("/pictures/{number}", picture),
        *(Route(f"/api/{name}", posted(handle), methods=["POST"]) for name, handle in posts.items()),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response})
    return SameOrigin(GZipMiddleware(app, minimum_size=10_000, compresslevel=1), own_origins(port), (TOKEN, token))


def batch_edit(what: str, body: Mapping[str, Any]) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that a batch request names. Raises `UsageError`."""
    text = str(body.get("text") or "")
    if what == "replace":
        flags = {name: bool(body.get(name)) for name in ("case", "whole_words")}
        return replacing(text, str(body.get("by") or ""), **flags)
    if what == "trigger":
        return prepending(text)
    if what in ("add tag", "remove tag"):
        return tagging(text, remove=what == "remove tag")
    if what in ("accept", "do not accept"):
        return stating("accepted", what == "accept")
    raise UsageError(f"what: expected replace, trigger, add tag, remove tag or accept, got {what[:40]!r}")


def numbers_in(body: Mapping[str, Any], count: int) -> list[int]:
    """Returns the ``numbers`` of a request. Raises `UsageError` unless they are a list of picture numbers."""
    numbers = want(dict(body), "numbers", list)
    if not all(type(number) is int for number in numbers):
        raise UsageError("numbers: expected a list of numbers")
    return [within(number, count, "picture") for number in dict.fromkeys(numbers)]


def answer_of(session: ReviewSession, saved: Saved) -> dict[str, Any]:
    """Returns the response to a write, with the current state of its rows."""
    rows = {number: session.row(number) for number in saved.rows}
    return {"rows": rows, "conflicts": saved.conflicts, "message": saved.message, **session.undoable()}


def error_response(_: Request, error: Exception) -> Response:
    """Returns the error as a one-line JSON response."""
    return JSONResponse({"error": str(error)}, status_code=400 if isinstance(error, UsageError) else 500)


def server_of(session: ReviewSession, listener: socket.socket) -> Any:
    """Returns a uvicorn server of the page; ``run(sockets=[listener])`` serves until ``should_exit``."""
    return web.server_of(create_app(session, listener.getsockname()[1]))


def serve(session: ReviewSession, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C; first calls ``ready`` with the address."""
    web.serve(create_app(session, listener.getsockname()[1]), listener, ready)
