"""OpenAI-compatible server for a captioner: ``POST /v1/chat/completions`` and ``GET /v1/models``.

A request contains one picture as a ``data:`` URL (nothing is fetched). It accepts the options of ``tellapart caption``
(``consensus``, ``best_of``, ``confidence`` and ``drop_guesses``, alias ``truthful``), OpenAI's ``n``, ``temperature``,
``max_tokens`` and ``logprobs``, and vLLM's ``prompt_logprobs``: the log-probabilities of the text in the last message,
whose role is assistant. Fields that would have no effect are rejected. Requests are processed one at a time; all
samples of a request form one batch.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from anyio import Lock
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tellapart.captioners.captioner import Captioner
from tellapart.data import Skipped
from tellapart.data.pictures import BytesPicture, content_key
from tellapart.errors import PictureError, TellapartError, UsageError, nearest
from tellapart.inference.best_of import BestOf
from tellapart.inference.engine import CaptionEngine
from tellapart.language.token_spans import token_bytes
from tellapart.models.decoding import Decoding
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.web.origins import own_origins, with_headers

LARGEST_BODY = 20 * 2**20  # bytes; a 14 MB photo in base64
MOST_SAMPLES = 256
WAITING = 64  # requests that may wait for the model; others are told to retry
# Fields that clients send but that have no effect here, with their permitted values.
WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "user": (), "metadata": (), "store": (), "safety_identifier": (), "prompt_cache_key": (),
    "top_p": (1, None), "presence_penalty": (0, None), "frequency_penalty": (0, None), "top_logprobs": (0, None),
    "stop": (None, []), "response_format": (None, {"type": "text"}), "tools": (None, []),
}  # fmt: skip


class StreamOptions(BaseModel):
    """Streaming options. ``include_usage``: add the answer's ``usage`` to the last event."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class Asked(BaseModel):
    """The body of a request: the fields of OpenAI's chat completions, and our extensions."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = ""
    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0)
    n: int = Field(1, ge=1, le=MOST_SAMPLES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    seed: int | None = None
    beams: int | None = Field(None, ge=1, le=64)
    consensus: int | None = Field(None, ge=3, le=MOST_SAMPLES)
    best_of: int | None = Field(None, ge=2, le=MOST_SAMPLES)
    scorer_weight: float | None = Field(None, gt=0)
    confidence: float | None = Field(None, ge=0.01, le=0.99)
    drop_guesses: bool = False
    truthful: bool = False
    logprobs: bool | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=0)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @property
    def given(self) -> str | None:
        """Returns the text to score for ``prompt_logprobs``; None if none was requested. Raises `UsageError` if fields
        are inconsistent.
        """
        last = self.messages[-1]
        continues = bool(self.continue_final_message) and self.add_generation_prompt is False
        if self.prompt_logprobs is None:
            if self.continue_final_message is not None or self.add_generation_prompt is not None:
                raise UsageError(
                    "continue_final_message and add_generation_prompt require prompt_logprobs; add it, or remove them"
                )
            return None
        if last.get("role") != "assistant" or not isinstance(last.get("content"), str) or not continues:
            raise UsageError(
                "prompt_logprobs scores the text of a final assistant message; send one, with "
                "continue_final_message = true and add_generation_prompt = false"
            )
        if self.logprobs or self.n > 1 or (self.max_completion_tokens or self.max_tokens) != 1:
            raise UsageError(
                "prompt_logprobs scores a text without generating one; send max_tokens = 1, and neither logprobs nor n"
            )
        if self.stream:
            raise UsageError("prompt_logprobs does not support streaming; remove stream")
        return str(last["content"])

    def decoding(self, default: Decoding) -> Decoding:
        """Returns the decoding settings of the request. Raises `UsageError` if fields are inconsistent."""
        if self.consensus and self.best_of:
            raise UsageError("consensus and best_of cannot be combined; remove one of them")
        if self.n > 1 and (self.consensus or self.best_of):
            raise UsageError(
                "n cannot be combined with consensus or best_of, which return a single caption; remove one of them"
            )
        if self.scorer_weight and not self.consensus:
            raise UsageError("scorer_weight requires consensus; add it, for example consensus = 48")
        sampled = self.consensus or self.best_of or self.n > 1 or self.temperature
        if self.beams and sampled:
            raise UsageError(
                "beams cannot be combined with sampling; remove beams, or remove temperature, n, consensus and best_of"
            )
        found: dict[str, Any] = {"max_tokens": self.max_completion_tokens or self.max_tokens or default.max_tokens}
        if self.consensus:
            found |= {"kind": "consensus", "candidates": self.consensus, "temperature": self.temperature or 0.6}
            found |= {"scorer_weight": self.scorer_weight} if self.scorer_weight else {}
        elif sampled:
            samples = self.best_of or self.n
            found |= {"kind": "sample", "samples": samples, "temperature": self.temperature or 1.0}
        elif self.beams or self.temperature is None:
            beams = self.beams or (default.beams if default.kind == "beam" else 1)
            found |= {"kind": "beam", "beams": beams} if beams > 1 else {"kind": "greedy"}
        if self.confidence:
            found["confidence"] = self.confidence
        return Decoding(**found)


@dataclass
class Service:
    """A captioner that answers requests.

    scorer: required for ``best_of``, and for ``consensus`` with ``scorer_weight``. decoding: the default settings. key:
    the API key that every request must contain; None: no key. contrast: the pictures with which ``drop_guesses``
    compares.
    """

    captioner: Captioner
    decoding: Decoding
    scorer: Scorer | None = None
    key: str | None = None
    contrast: list[Item] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _waiting: int = 0

    def answer(self, asked: Asked) -> dict[str, Any]:
        """Returns the body of the answer. Raises `UsageError` if the request cannot be fulfilled."""
        extra = asked.model_extra or {}
        for name, value in extra.items():
            if name not in WITHOUT_EFFECT:
                known = [*Asked.model_fields, *WITHOUT_EFFECT]
                raise UsageError(f"unknown field '{name}'{nearest(name, known)}")
            if WITHOUT_EFFECT[name] and value not in WITHOUT_EFFECT[name]:
                raise UsageError(f"{name} = {json.dumps(value)[:60]} is not supported; remove it")
        if asked.model and asked.model not in (self.captioner.name, "default"):
            raise UsageError(f"unknown model '{asked.model}'; this server provides '{self.captioner.name}'")
        if asked.stream_options and not asked.stream:
            raise UsageError("stream_options requires stream = true; add it, or remove stream_options")
        given = asked.given
        picture, question = read_messages(asked.messages if given is None else asked.messages[:-1])
        started, captions, more = time.monotonic(), [""], {}
        cut = [True]  # when scoring a given text, one token is generated
        tokens: list[list[dict[str, Any]]] | None = None
        if given is not None:
            ((_, scored, _),) = self.scored(picture, asked, given)
            by_id = [{str(token.pop("id")): token} for token in scored]
            more = {"prompt_logprobs": [None, *by_id]}  # a prompt's first token has nothing before it
        elif asked.logprobs:
            found = self.scored(picture, asked)
            captions, tokens = [text for text, _, _ in found], [content for _, content, _ in found]
            cut = [one for _, _, one in found]
        else:
            captions, cut = self.captions(picture, asked)
        words = sum(len(caption.split()) for caption in captions)
        choices: list[dict[str, Any]] = [
            {
                "index": n,
                "finish_reason": "length" if cut[n] else "stop",
                "message": {"role": "assistant", "content": caption},
                "logprobs": None if tokens is None else {"content": tokens[n], "refusal": None},
            }
            for n, caption in enumerate(captions)
        ]
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.captioner.name,
            "choices": choices,
            "usage": {"prompt_tokens": 0, "completion_tokens": words, "total_tokens": words},
            "seconds": round(time.monotonic() - started, 3),
            **more,
        }
        if question:
            answer["warnings"] = [
                (
                    "the text of the message was ignored, because this captioner's prompt is part of "
                    "its name (tellapart serve 'MODEL?prompt=…')"
                )
            ]
        return answer

    def fitted(self, decoding: Decoding) -> Decoding:
        """Limits max_tokens to the captioner's maximum, because clients ask for 256 or 4,096 by default."""
        most = self.most_tokens
        return decoding if most is None else decoding.model_copy(update={"max_tokens": min(decoding.max_tokens, most)})

    @cached_property
    def most_tokens(self) -> int | None:
        """Returns the captioner's maximum caption length in tokens; may run its encoder once."""
        return self.captioner.max_caption_tokens

    def captions(self, picture: BytesPicture, asked: Asked) -> tuple[list[str], list[bool]]:
        """Returns the captions that a request asks for, and whether each was truncated at max_tokens.

        Callers use the model one at a time.
        """
        decoding = asked.decoding(self.decoding)
        guesses = asked.drop_guesses or asked.truthful
        if (asked.best_of or decoding.asks_scorer) and self.scorer is None:
            raise UsageError("best_of and scorer_weight require a scorer; start the server with --scorer MODEL")
        if guesses and (asked.n > 1 or asked.best_of):
            raise UsageError("drop_guesses returns a single edited caption; remove n and best_of")
        item, skipped = seeded(picture, asked.seed), Skipped()
        with self._turn:
            engine = CaptionEngine.open(self.captioner, self.fitted(decoding), None, skipped)
            if guesses:
                engine.doubt_words([item, *self.contrast], "the server's --contrast pictures")
            chooser = None
            if self.scorer is not None and (asked.best_of or decoding.asks_scorer):
                with torch.no_grad():
                    features_1D = self.scorer.image_features(self.scorer.pixels([picture.image()]))
                chooser = BestOf.of_features(self.scorer, [item.id], features_1D.cpu().float().numpy(), progress=False)
            found = [one for _, some in engine.captions([item], chooser) for one in some]
        if not found:
            raise _unreadable(skipped)
        texts = list(found[0].samples[: asked.n]) if asked.n > 1 else [found[0].caption]
        return texts, [text in engine.cut for text in texts]

    def scored(
        self, picture: BytesPicture, asked: Asked, text: str | None = None
    ) -> list[tuple[str, list[dict[str, Any]], bool]]:
        """Returns captions, or ``text``, each with its tokens in ``logprobs`` format and whether it was truncated.

        If ``text`` is given, tokens also have their ``id``, and their text as ``decoded_token``, as in vLLM's
        ``prompt_logprobs``.
        """
        if asked.consensus or asked.best_of or asked.confidence or asked.drop_guesses or asked.truthful:
            raise UsageError(
                "log-probabilities are not available for edited or selected captions; remove "
                "consensus, best_of, confidence and drop_guesses"
            )
        skipped = Skipped()
        with self._turn:
            engine = CaptionEngine.open(self.captioner, self.fitted(asked.decoding(self.decoding)), None, skipped)
            result = engine.log_probs(seeded(picture, asked.seed), text)
        if result is None:
            raise _unreadable(skipped)
        rollout, log_p_RT = result
        found = []
        rows = rollout.texts, rollout.tokens_RT, rollout.valid_RT, log_p_RT, self.captioner.stopped(rollout).tolist()
        for written, tokens_T, valid_T, log_p_T, stopped in zip(*rows, strict=True):
            row = tokens_T[valid_T].tolist()
            pieces = token_bytes(row, written, self.captioner.tokenizer)
            tokens: list[dict[str, Any]] = []
            for id_, piece, log_p in zip(row, pieces, log_p_T[valid_T].tolist(), strict=True):
                shown = piece.decode("utf-8", "replace")
                token = {"token": shown, "logprob": log_p, "bytes": list(piece), "top_logprobs": []}
                tokens.append(token if text is None else token | {"id": id_, "decoded_token": shown})
            found.append((" ".join(written.split()), tokens, not stopped))
        return found


def seeded(picture: BytesPicture, seed: int | None) -> Item:
    """Returns the item for a request; the same content and seed give the same samples."""
    return Item(content_key(f"{picture.key()}|{seed}".encode()), picture)


def _unreadable(skipped: Skipped) -> UsageError:
    return UsageError(f"the picture cannot be read: {skipped[0][1] if skipped else 'unknown'}")


def read_messages(messages: list[dict[str, Any]]) -> tuple[BytesPicture, str]:
    """Returns the picture and the text in the messages. Raises `UsageError` unless there is exactly one picture."""
    pictures: list[BytesPicture] = []
    texts: list[str] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
            continue
        if not isinstance(content, list):
            raise UsageError("messages: expected content to be text or a list of parts")
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text":
                texts.append(str(part.get("text") or ""))
            elif kind == "image_url":
                address = part.get("image_url")
                address = address.get("url") if isinstance(address, dict) else address
                pictures.append(read_picture(address if isinstance(address, str) else ""))
            else:
                raise UsageError(f"messages: unsupported part of type '{kind}'; expected text or image_url")
    if len(pictures) != 1:
        raise UsageError(f"expected one picture, as an image_url with a data: URL; got {len(pictures)}")
    return pictures[0], " ".join(text.strip() for text in texts).strip()


def read_picture(address: str) -> BytesPicture:
    """Returns the picture in a ``data:…;base64,…`` URL. Raises `UsageError` for any other URL."""
    head, comma, data = address.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise UsageError("image_url: expected data:image/…;base64,…; this server does not download pictures")
    try:
        return BytesPicture(base64.b64decode("".join(data.split()), validate=True), "the picture")
    except (binascii.Error, ValueError):
        raise UsageError("image_url: invalid base64 data") from None


def plain_pictures() -> list[Item]:
    """Returns blank pictures, with which ``drop_guesses`` compares by default."""
    return [Item(colour, BytesPicture.plain(colour, 64)) for colour in ("grey", "white", "black")]


def create_app(service: Service, port: int, hosts: frozenset[str] | None = None) -> ASGIApp:
    """Creates the ASGI application. hosts: allowed Host headers; default: the loopback names with ``port``."""

    def error(status: int, text: str, **headers: str) -> JSONResponse:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": text, "type": kind, "code": status}}, status, headers)

    turn = Lock()  # one picture at a time; requests whose client disconnects while waiting are dropped

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
        if service._waiting >= WAITING:
            return error(429, f"{WAITING} requests are already waiting; try again later", **{"Retry-After": "5"})
        service._waiting += 1
        try:
            asked = Asked.model_validate_json(data)
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
            service._waiting -= 1
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            return StreamingResponse(_events(answer, usage), media_type="text/event-stream")
        return JSONResponse(answer)

    def unknown(request: Request, wrong: Exception) -> Response:
        """Responds to unknown paths and methods in JSON, like OpenAI's servers."""
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


class Guard:
    """Middleware that rejects foreign Host headers, requests without the key, and requests from web pages.

    Browsers send ``Origin`` with cross-site posts; API clients do not.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], key: str | None, error: Any) -> None:
        self.app, self.hosts, self.key, self.error = app, hosts, key, error

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
