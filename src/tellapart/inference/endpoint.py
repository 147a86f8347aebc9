"""An OpenAI-compatible server for a captioner: ``POST /v1/chat/completions`` and ``GET /v1/models``.

A request contains one picture as a ``data:`` URL; the server does not download pictures. A request can set options of
``tellapart caption`` (``consensus``, ``best_of``, ``confidence`` and ``drop_guesses``, alias ``truthful``), OpenAI's
``n``, ``temperature``, ``max_tokens`` and ``logprobs``, and vLLM's ``prompt_logprobs``, which returns the
log-probabilities of the text in a final assistant message. Fields that would have no effect are rejected. Requests are
processed one at a time, and all samples of a request form one batch.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from anyio import Lock
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.inference.chat_request import ChatRequest
from tellapart.inference.service import Service
from tellapart.utils.web.origins import own_origins, with_headers

LARGEST_BODY = 20 * 2**20  # bytes; enough for a 14 MB photo in base64
WAITING = 64  # maximum number of requests that wait for the model; further clients are told to retry


def create_app(service: Service, port: int, hosts: frozenset[str] | None = None) -> ASGIApp:
    """Creates the ASGI application. ``hosts``: allowed Host headers [default: the loopback names with ``port``]."""

    def error(status: int, text: str, **headers: str) -> JSONResponse:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": text, "type": kind, "code": status}}, status, headers)

    turn = Lock()  # one picture at a time; if a client disconnects while waiting, its request is dropped

    def models(_: Request) -> Response:
        model = {"id": service.captioner.name, "object": "model", "created": 0, "owned_by": "tellapart"}
        return JSONResponse({"object": "list", "data": [model]})

    async def completions(request: Request) -> Response:
        data = b""
        try:
            async for chunk in request.stream():
                data += chunk
                if len(data) > LARGEST_BODY:
                    return error(413, f"the request exceeds {LARGEST_BODY:,} bytes; send a smaller picture")
        except ClientDisconnect:
            return error(400, "the connection was closed before the whole request arrived")
        if service.waiting >= WAITING:
            return error(429, f"{WAITING} requests are already waiting; try again later", **{"Retry-After": "5"})
        service.waiting += 1
        try:
            asked = ChatRequest.model_validate_json(data)
            async with turn:
                if await request.is_disconnected():
                    return error(400, "the connection was closed while the request was waiting")
                answer = await run_in_threadpool(service.answer, asked)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False, include_input=False)[0]
            return error(400, f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}")
        except (UsageError, PictureError) as wrong:
            return error(400, str(wrong))
        except TellapartError as wrong:
            return error(500, str(wrong))
        finally:
            service.waiting -= 1
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            return StreamingResponse(_events(answer, usage), media_type="text/event-stream")
        return JSONResponse(answer)

    def unknown(request: Request, wrong: Exception) -> Response:
        """Responds to unknown paths and methods with JSON, like OpenAI's servers."""
        assert isinstance(wrong, HTTPException)
        asked = f"{request.method} {request.url.path}"
        text = f"{asked} does not exist; expected POST /v1/chat/completions or GET /v1/models"
        return error(wrong.status_code, text, **(wrong.headers or {}))

    routes = [
        Route("/v1/models", models),
        Route("/v1/chat/completions", completions, methods=["POST"]),
        Route("/health", lambda _: JSONResponse({"status": "ok"})),
    ]
    allowed = hosts or frozenset(origin.partition("://")[2] for origin in own_origins(port))
    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: unknown}), allowed, service.key, error)


def _events(answer: dict[str, Any], usage: bool) -> Iterator[str]:
    """Yields an answer as server-sent events: each caption in one piece, then ``usage`` if requested."""
    head = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
    head |= {"object": "chat.completion.chunk"} | ({"usage": None} if usage else {})
    for choice in answer["choices"]:
        delta = {**choice, "delta": choice["message"], "finish_reason": None}
        delta.pop("message")
        yield f"data: {json.dumps({**head, 'choices': [delta]})}\n\n"
        end = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        yield f"data: {json.dumps({**head, 'choices': [end]})}\n\n"
    if usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': answer['usage']})}\n\n"
    yield "data: [DONE]\n\n"


@dataclass(frozen=True)
class Guard:
    """Middleware that rejects foreign Host headers, requests without the API key, and requests from other websites.

    Browsers send ``Origin`` with cross-site posts; API clients do not.
    """

    app: ASGIApp
    hosts: frozenset[str]
    key: str | None
    error: Callable[[int, str], ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", [])}
        answer: ASGIApp = self.app
        given = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if headers.get("host", "") not in self.hosts:
            answer = self.error(403, "this server only accepts requests to its own address")
        elif "origin" in headers and headers["origin"].partition("://")[2] not in self.hosts:
            answer = self.error(403, "request rejected: it comes from a page on another website")
        elif self.key is not None and not secrets.compare_digest(given, self.key.encode()):
            answer = self.error(401, "missing or invalid API key; send Authorization: Bearer KEY")

        await answer(scope, receive, with_headers(send))
