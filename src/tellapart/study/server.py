"""The routes of a study's page. Requests contain a token, numbers and an identifier, never a path.

A token in a header, which other sites cannot send, identifies a participant. There are no cookies, and no requests are
logged. Picture URLs are randomized per participant.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.errors import TellapartError, UsageError
from tellapart.study.databases import StoreError
from tellapart.study.limits import StartLimit, TooManyStarts, address_of
from tellapart.study.session import AnswerConflict, Full, StudySession, Unknown
from tellapart.utils.web.origins import SameOrigin, own_origins
from tellapart.utils.web.page_files import part_routes
from tellapart.utils.web.requests import read_body, want

PARTICIPANT_HEADER = "x-participant"
NO_STORE = {"Cache-Control": "no-store"}
LONGEST_IDENTIFIER = 200


def create_app(session: StudySession, port: int, public_url: str | None = None) -> ASGIApp:
    """Creates the application for a server on the loopback address at ``port``, publicly reached at ``public_url``."""

    def public(request: Request) -> Response:
        return JSONResponse(session.public(), headers=NO_STORE)

    def state(request: Request) -> Response:
        return JSONResponse(session.state(request.headers.get(PARTICIPANT_HEADER, "")), headers=NO_STORE)

    def picture(request: Request) -> Response:
        found = session.picture(request.path_params["address"])
        if found is None:
            return PlainTextResponse("no such picture", status_code=404)
        data, kind = found
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    starts = StartLimit(session.clock, public_url is not None)

    def write(action: str, token: str, body: dict[str, Any], address: str) -> Response:
        def may_start() -> None:
            starts.count(address, session.study.settings.recruitment.starts_per_address)

        if action == "begin":
            if body.get("consent") is not True:
                raise UsageError("consent: required to take part")
            texts = identifier, label, visit = [
                str(body.get(name) or "") for name in ("identifier", "study", "session")
            ]
            if any(len(text) > LONGEST_IDENTIFIER for text in texts):
                raise UsageError(f"identifier: expected at most {LONGEST_IDENTIFIER} characters")
            if not all(text.isprintable() for text in texts):
                raise UsageError("identifier: contains unprintable characters")
            made, state = session.begin(identifier, label, visit, token, str(body.get("key") or ""), may_start)
            return JSONResponse({"token": made, **state}, headers=NO_STORE)
        if action == "decline":
            return JSONResponse(session.decline(str(body.get("key") or ""), may_start), headers=NO_STORE)
        if action == "answer":
            options = want(body, "options", list)
            found = session.answer(token, want(body, "position", int), options, want(body, "revision", int))
            return JSONResponse(found, headers=NO_STORE)
        done = {"back": session.back, "finish": session.finish, "withdraw": session.withdraw}[action](token)
        return JSONResponse(done, headers=NO_STORE)

    async def post(request: Request) -> Response:
        action = request.path_params["action"]
        if action not in ("begin", "decline", "answer", "back", "finish", "withdraw"):
            return PlainTextResponse("not found", status_code=404)
        token, body = request.headers.get(PARTICIPANT_HEADER, ""), await read_body(request)
        return await run_in_threadpool(write, action, token, body, address_of(request))

    def error_response(_: Request, error: Exception) -> Response:
        if isinstance(error, Full):
            return JSONResponse(session.full(), headers=NO_STORE)
        if isinstance(error, AnswerConflict):
            return JSONResponse({"error": str(error), "state": error.state}, status_code=409)
        statuses = ((Unknown, 401), (TooManyStarts, 429), (UsageError, 400), (StoreError, 503))
        status = next((number for kind, number in statuses if isinstance(error, kind)), 500)
        text = "the answer could not be saved; it will be sent again" if status == 503 else str(error)
        wait = {503: "5", 429: "3600"}.get(status)
        return JSONResponse({"error": text}, status_code=status, headers={"Retry-After": wait} if wait else None)

    routes = [
        *part_routes("tellapart.study"),
        Route("/api/study", public),
        Route("/api/state", state),
        Route("/pictures/{address:str}", picture),
        Route("/api/{action:str}", post, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response})
    return SameOrigin(app, own_origins(port, public_url))
