"""The routes of a study's page. Requests contain a token, numbers and an identifier, but never a path.

A token identifies a participant. It is sent in a header, which other sites cannot send. There are no cookies, and
requests are not logged. Picture URLs are randomized for each participant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictInt, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.errors import TellapartError, UsageError
from tellapart.study.databases import StoreError
from tellapart.study.limits import TooManyStarts, client_address
from tellapart.study.session import AnswerConflict, StudySession, Unknown
from tellapart.utils.validation_errors import validation_message
from tellapart.utils.web import server as web_server
from tellapart.utils.web.origins import SameOrigin, own_origins
from tellapart.utils.web.page_files import part_routes
from tellapart.utils.web.requests import read_body

PARTICIPANT_HEADER = "x-participant"
ERROR_STATUS = {UsageError: 400, Unknown: 401, AnswerConflict: 409, TooManyStarts: 429, StoreError: 503}
RETRY_AFTER = {429: "3600", 503: "5"}  # seconds


class BeginRequest(BaseModel):
    """The body of a request to take part, with consent."""

    consent: Literal[True]
    identifier: Annotated[str, Field(max_length=200)] = ""
    key: str = ""


class AnswerRequest(BaseModel):
    """The body of a request that answers an item."""

    position: StrictInt
    options: list[StrictInt]
    revision: StrictInt


def create_app(session: StudySession, port: int, public_url: str | None = None) -> ASGIApp:
    """Creates the application for a server on the loopback address at ``port``. ``public_url``: the URL at which
    participants reach the server.
    """

    def public(request: Request) -> Response:
        return _json(session.public())

    def state(request: Request) -> Response:
        return _json(session.state(request.headers.get(PARTICIPANT_HEADER, "")))

    def picture(request: Request) -> Response:
        content = session.pictures.read(request.path_params["address"])
        if content is None:
            return PlainTextResponse("no such picture", status_code=404)
        return Response(content[0], media_type=content[1], headers={"Cache-Control": "private, max-age=3600"})

    def act(action: str, token: str, body: dict[str, Any], address: str) -> dict[str, Any]:
        try:
            if action == "begin":
                request = BeginRequest(**body).model_dump(exclude={"consent"})
                return session.begin(token, **request, address=address)
            if action == "decline":
                return session.decline(str(body.get("key", "")), address)
            if action == "answer":
                return session.answer(token, **AnswerRequest(**body).model_dump())
        except ValidationError as error:
            raise UsageError(validation_message(error)) from None
        return {"back": session.back, "finish": session.finish, "withdraw": session.withdraw}[action](token)

    async def post(request: Request) -> Response:
        token, body = request.headers.get(PARTICIPANT_HEADER, ""), await read_body(request)
        address = client_address(request.headers.get("x-forwarded-for", ""))
        action = request.url.path.rpartition("/")[2]
        return _json(await run_in_threadpool(act, action, token, body, address))

    actions = ("begin", "decline", "answer", "back", "finish", "withdraw")
    routes = [
        *part_routes("tellapart.study"),
        Route("/api/study", public),
        Route("/api/state", state),
        Route("/pictures/{address:str}", picture),
        *(Route(f"/api/{action}", post, methods=["POST"]) for action in actions),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: _error})
    return SameOrigin(app, own_origins(port, public_url))


def serve(session: StudySession, port: int, public_url: str | None, ready: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C. Calls ``ready`` with the address first."""
    listener = web_server.bind(port)
    web_server.serve(create_app(session, listener.getsockname()[1], public_url), listener, ready)


def _json(value: dict[str, Any]) -> Response:
    return JSONResponse(value, headers={"Cache-Control": "no-store"})


def _error(_: Request, error: Exception) -> Response:
    status = ERROR_STATUS.get(type(error), 500)
    text = str(error) if status != 503 else "the answer could not be saved; it will be sent again"
    state = {"state": error.state} if isinstance(error, AnswerConflict) else {}
    headers = {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else None
    return JSONResponse({"error": text, **state}, status_code=status, headers=headers)
