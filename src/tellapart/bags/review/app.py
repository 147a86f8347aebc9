"""The routes of the review page. Requests name numbers or fixed words, never paths.

The page is for this machine's browser alone. A request must name this host (else another site's name could be made to
point here), and one that writes must come from this page (Origin) with the token that only this page can read.
"""

from __future__ import annotations

import secrets
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.bags.review.session import Review, decision_json
from tellapart.bags.review.store import Conflict, reviewer_name
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.utils.web.body import read_body, want, within
from tellapart.utils.web.parts import part_routes
from tellapart.utils.web.security import SameOrigin, own_origins

TOKEN = "x-review-token"


def create_app(review: Review, port: int) -> ASGIApp:
    """The application, for a server that listens on the loopback address at ``port``."""
    token = secrets.token_urlsafe(32)

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
        *part_routes("tellapart.bags.review"),
        Route("/api/state", state),
        Route("/api/bags/{number:int}/captions", captions),
        Route("/pictures/{number:int}", picture),
        Route("/api/decisions", decide, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response})
    return SameOrigin(app, own_origins(port), (TOKEN, token))


def error_response(_: Request, error: Exception) -> Response:
    """The error as JSON, in one line."""
    status = 409 if isinstance(error, Conflict) else 400 if isinstance(error, UsageError) else 500
    current = decision_json(error.current) if isinstance(error, Conflict) and error.current else None
    return JSONResponse({"error": str(error), "current": current}, status_code=status)
