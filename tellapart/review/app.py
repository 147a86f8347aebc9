"""The routes of the review page. Requests name numbers or fixed words, never paths.

The page is for this machine's browser alone. A request must name this host (else another site's name could be made to
point here), and one that writes must come from this page (Origin) with the token that only this page can read.
"""

from __future__ import annotations

import json
import secrets
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.review.session import Review, decision_json
from tellapart.review.store import Conflict, reviewer_name

TOKEN = "x-review-token"
LARGEST_POST = 64 * 1024  # bytes
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PARTS = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


class SameOrigin:
    """Middleware that rejects requests from other origins and adds the security headers."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        if port == 80:
            self.hosts |= {"127.0.0.1", "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        refusal = self._refusal(scope)
        answer = self.app if refusal is None else JSONResponse({"error": refusal}, status_code=403)
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self.hosts:
            return "this page answers only to this machine's own address"
        if scope["method"] in ("GET", "HEAD"):
            return None
        if headers.get("origin", "") not in {f"http://{host}" for host in self.hosts}:
            return "refused: the request comes from another site"
        if not secrets.compare_digest(headers.get(TOKEN, "").encode(), self.token.encode()):
            return "refused: the token is not this page's; load the page again"
        return None


def create_app(review: Review, port: int) -> ASGIApp:
    """The application, for a server that listens on the loopback address at ``port``."""
    token = secrets.token_urlsafe(32)

    def part(request: Request) -> Response:
        name, kind = PARTS[request.url.path]
        text = (files("tellapart.review") / name).read_text(encoding="utf-8")
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})

    def state(request: Request) -> Response:
        name = request.query_params.get("reviewer")
        reviewer = reviewer_name(name) if name else None
        return JSONResponse({"token": token, **review.state(reviewer)}, headers={"Cache-Control": "no-store"})

    def captions(request: Request) -> Response:
        return JSONResponse(review.captions(within(request.path_params["number"], len(review.bags), "bag")))

    def picture(request: Request) -> Response:
        number = within(request.path_params["number"], len(review.items), "picture")
        try:
            data, kind = review.encoded(number)
        except PictureError as error:
            return PlainTextResponse(str(error), status_code=410)
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    async def decide(request: Request) -> Response:
        return await run_in_threadpool(write_decision, await read_body(request))

    async def undo(request: Request) -> Response:
        return await run_in_threadpool(write_undo, await read_body(request))

    def write_decision(body: dict[str, Any]) -> Response:
        bag = within(want(body, "bag", int), len(review.bags), "bag")
        facets = want(body, "facets", list)
        if not all(isinstance(facet, str) for facet in facets):
            raise UsageError("facets: expected a list of names")
        reviewer = reviewer_name(want(body, "reviewer", str))
        replaces = None if body.get("replaces") is None else want(body, "replaces", int)
        made = review.store.decide(
            reviewer,
            review.keys[bag],
            want(body, "verdict", str),
            facets,
            want(body, "note", str),
            replaces=replaces,
        )
        return JSONResponse({"decision": decision_json(made), **progress(reviewer)})

    def write_undo(body: dict[str, Any]) -> Response:
        reviewer = reviewer_name(want(body, "reviewer", str))
        undone = review.store.undo(reviewer, want(body, "decision", int))
        bag = review.keys.index(undone.bag) if undone.bag in review.keys else None
        return JSONResponse({"bag": bag, "undone": decision_json(undone), **progress(reviewer)})

    def progress(reviewer: str) -> dict[str, Any]:
        standing = review.store.standing()
        return {**review.of_reviewer(reviewer, standing), **review.summary(standing)}

    routes = [
        *(Route(path, part) for path in PARTS),
        Route("/api/state", state),
        Route("/api/bags/{number:int}/captions", captions),
        Route("/pictures/{number:int}", picture),
        Route("/api/decisions", decide, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response})
    return SameOrigin(app, port, token)


def error_response(_: Request, error: Exception) -> Response:
    """The error as JSON, in one line."""
    status = 409 if isinstance(error, Conflict) else 400 if isinstance(error, UsageError) else 500
    current = decision_json(error.current) if isinstance(error, Conflict) and error.current else None
    return JSONResponse({"error": str(error), "current": current}, status_code=status)


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object of a post. Raises `UsageError` for anything else, and for more than `LARGEST_POST` bytes."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_POST:
            raise UsageError(f"a request of more than {LARGEST_POST:,} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UsageError("expected a JSON object")
    return body


def want(body: dict[str, Any], name: str, kind: type) -> Any:
    """A field of that kind, or a `UsageError`."""
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name}: expected {kind.__name__}, found {json.dumps(value)[:80]}")
    return value


def within(number: int, count: int, what: str) -> int:
    """A number from 0 to count − 1, or a `UsageError`."""
    if not 0 <= number < count:
        raise UsageError(f"no {what} {number}; there are {count:,}, from 0 on")
    return number
