"""Batch endpoints of OpenAI and Anthropic, which answer within 24 hours at half the price.

openai:MODEL?batch=1            uploads a file of requests to ``/files`` and has it answered by ``/batches``
anthropic:MODEL?batch=1         sends the requests to ``/messages/batches``
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from tellapart.boost.chat_body import chat_body, sampling
from tellapart.boost.data_url import data_url
from tellapart.boost.openai_server import MOST_CHOICES
from tellapart.boost.redaction import readable, redact
from tellapart.boost.replies import Reply
from tellapart.boost.server_model import URL_VARIABLE, ServerModel
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.errors import TellapartError, UsageError, need_extra
from tellapart.utils.strict_json import parse_json

with suppress(ImportError):  # `BatchServer` reports that the extra "boost" is not installed
    import httpx2

RETRY_SECONDS = (1.0, 3.0, 10.0, 30.0, 60.0)
NOT_PROCESSED = frozenset({408, 409, 425, 429, 503, 529})  # statuses of requests that the server did not process
TIMEOUT = 600.0  # in seconds; long enough to upload 190 MB over a slow connection
HALF = 0.5  # price of a batched request relative to a single request, at both companies
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL, ANTHROPIC_KEY, ANTHROPIC_VERSION = "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "2023-06-01"
BATCH_EXAMPLE = "openai:MODEL?batch=1 or anthropic:MODEL?batch=1"

Result = tuple[str, Answer | BackendError]  # a request's id and its answer


@dataclass(frozen=True)
class BatchState:
    """State of a batch on the server. ``refusal``: why the server rejected the whole batch, or "" if it accepted it."""

    ended: bool
    done: int
    total: int
    refusal: str = ""


class BatchServer(ABC):
    """A provider's batch endpoint. Retries requests after network failures and temporary errors. A request that creates
    a batch is retried only if the server cannot have processed it.

    logprobs: whether the endpoint can return log-probabilities of its answers.
    """

    most_choices = 1
    logprobs = True

    def __init__(self, model: ServerModel, headers: Mapping[str, str]) -> None:
        need_extra("boost", "a batch endpoint", "httpx2")
        self.model, self.name = model, model.name
        self._client = httpx2.Client(
            base_url=model.address,
            headers=dict(headers),
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=not model.on_this_machine,
        )

    @abstractmethod
    def line(self, key: str, request: Request) -> bytes:
        """Returns one request as JSON. Raises `PictureError` if its picture cannot be read."""

    @abstractmethod
    def send(self, lines: BinaryIO) -> str:
        """Sends JSON lines as one batch and returns the batch's id."""

    @abstractmethod
    def state(self, batch: str) -> BatchState:
        """Returns the state of a batch."""

    @abstractmethod
    def results(self, batch: str) -> Iterator[Result]:
        """Yields the answers of a batch that has ended."""

    def _json(
        self, method: str, path: str, content: Callable[[], dict[str, Any]] = dict, *, creates_batch: bool = False
    ) -> Any:
        """Sends a request and returns the reply as JSON.

        content: builds the request's arguments anew for each attempt.
        creates_batch: whether the request creates a batch. It is not repeated if the server may have processed it.
        """
        for wait in (*RETRY_SECONDS, None):
            processed = True  # a second request could create, and charge for, a second batch
            try:
                response = self._client.request(method, path, **content())
                if response.is_success:
                    return response.json()
                processed = response.status_code not in NOT_PROCESSED
                error = self._error(response)
            except httpx2.TransportError as broken:
                processed = not isinstance(broken, httpx2.ConnectError | httpx2.ConnectTimeout)
                words = str(broken) or type(broken).__name__
                error = BackendError(f"the server is unreachable or closed the connection ({words})", retry=True)
            except ValueError:
                error = BackendError("the reply is not valid JSON")
            if not error.retry or wait is None or (creates_batch and processed):
                break
            time.sleep(max(wait, error.after or 0.0))
        raise self._failed(error)

    def _lines(self, path: str) -> Iterator[Any]:
        """Yields the values in a JSON Lines file on the server."""
        try:
            with self._client.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise self._failed(self._error(response))
                yield from (parse_json(line) for line in response.iter_lines() if line.strip())
        except httpx2.TransportError as broken:
            raise self._failed(BackendError(str(broken) or type(broken).__name__)) from None

    def _error(self, response: Any) -> BackendError:
        after = response.headers.get("retry-after")
        result = read_result(Reply(response.status_code, response.content, self.model.key, after))
        return result if isinstance(result, BackendError) else BackendError(f"unexpected status {response.status_code}")

    def _failed(self, error: BackendError) -> TellapartError:
        words = readable(str(error), self.model.key)
        return TellapartError(
            f"{self.name}: {words}; the answers so far are kept; run the same command again to resume"
        )

    def _unanswered(self, words: object) -> BackendError:
        return BackendError(readable(str(words), self.model.key))


class OpenAIBatches(BatchServer):
    """OpenAI's batch endpoint. Other servers with the same interface also work."""

    most_choices = MOST_CHOICES

    def __init__(self, model: ServerModel) -> None:
        super().__init__(model, {"Authorization": f"Bearer {model.key}"} if model.key else {})

    def line(self, key: str, request: Request) -> bytes:
        body = chat_body(self.model, request)
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(line).encode()

    def send(self, lines: BinaryIO) -> str:
        def upload() -> dict[str, Any]:
            lines.seek(0)
            return {"data": {"purpose": "batch"}, "files": {"file": ("requests.jsonl", lines, "application/jsonl")}}

        file = self._json("POST", "/files", upload)["id"]
        content = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return str(self._json("POST", "/batches", lambda: {"json": content}, creates_batch=True)["id"])

    def state(self, batch: str) -> BatchState:
        reply = self._json("GET", f"/batches/{batch}")
        status, counts = reply["status"], reply.get("request_counts") or {}
        errors = (reply.get("errors") or {}).get("data") or [{}]
        refusal = str(errors[0].get("message") or "no reason given") if status == "failed" else ""
        done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        ended = status in ("completed", "expired", "cancelled", "failed")
        return BatchState(ended, done, int(counts.get("total") or 0), readable(refusal, self.model.key))

    def results(self, batch: str) -> Iterator[Result]:
        reply = self._json("GET", f"/batches/{batch}")
        for file in filter(None, (reply.get("output_file_id"), reply.get("error_file_id"))):
            for value in self._lines(f"/files/{file}/content"):
                response, error = value.get("response") or {}, value.get("error") or {}
                if response.get("body") is None:
                    result = self._unanswered(error.get("message") or error.get("code") or "no response")
                    yield value["custom_id"], result
                else:
                    body, status = json.dumps(response["body"]).encode(), int(response.get("status_code") or 0)
                    yield value["custom_id"], read_result(Reply(status, body, self.model.key))


class AnthropicBatches(BatchServer):
    """Anthropic's batch endpoint. Supports neither seeds nor log-probabilities, and returns one choice per request."""

    logprobs = False

    def __init__(self, model: ServerModel) -> None:
        headers = {"x-api-key": model.key, "anthropic-version": ANTHROPIC_VERSION, "content-type": "application/json"}
        super().__init__(model, headers)

    def line(self, key: str, request: Request) -> bytes:
        messages: list[dict[str, Any]] = [{"role": one.role, "content": one.text} for one in request.messages]
        if request.picture is not None:
            kind, _, data = data_url(request.picture).removeprefix("data:").partition(";base64,")
            picture = {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            messages[-1]["content"] = [picture, {"type": "text", "text": messages[-1]["content"]}]
        body = {"model": self.model.model, "max_tokens": request.max_tokens, "messages": messages}
        return json.dumps({"custom_id": key, "params": body | sampling(self.model, request)}).encode()

    def send(self, lines: BinaryIO) -> str:
        def body() -> Iterator[bytes]:
            lines.seek(0)
            yield b'{"requests": ['
            for number, line in enumerate(lines):
                yield (b", " if number else b"") + line.rstrip(b"\n")
            yield b"]}"

        return str(self._json("POST", "/messages/batches", lambda: {"content": body()}, creates_batch=True)["id"])

    def state(self, batch: str) -> BatchState:
        reply = self._json("GET", f"/messages/batches/{batch}")
        counts = {name: int(count) for name, count in (reply.get("request_counts") or {}).items()}
        total = sum(counts.values())
        return BatchState(reply["processing_status"] == "ended", total - counts.get("processing", 0), total)

    def results(self, batch: str) -> Iterator[Result]:
        for value in self._lines(f"/messages/batches/{batch}/results"):
            result = value["result"]
            if result["type"] == "succeeded":
                yield value["custom_id"], self._answer(result["message"])
            else:
                error: Any = result.get("error") or {}
                error = error.get("error") or error
                yield value["custom_id"], self._unanswered(error.get("message") or result["type"])

    def _answer(self, message: Mapping[str, Any]) -> Answer:
        text = "".join(part.get("text") or "" for part in message["content"] if part.get("type") == "text")
        usage, finish = message.get("usage") or {}, str(message.get("stop_reason") or "stop")
        read, written = (int(usage.get(name) or 0) for name in ("input_tokens", "output_tokens"))
        return Answer(redact(text, self.model.key), read, written, "stop" if finish == "stop_sequence" else finish)


def read_result(reply: Reply) -> Answer | BackendError:
    """Returns the answer in one of a batch's replies, or the error that the reply reports."""
    if words := reply.moderation:
        return Answer("", finish=f"content_filter: {words}")
    try:
        return reply.answer()
    except BackendError as error:
        return error


def open_batch_server(spec: str) -> BatchServer:
    """Opens the batch endpoint of ``openai:MODEL@URL?key=…`` or ``anthropic:MODEL``. Raises `UsageError` for other
    backends.
    """
    kind = spec.partition(":")[0]
    if kind == "openai":
        url = os.environ.get(URL_VARIABLE) or OPENAI_URL
        return OpenAIBatches(ServerModel.parse(spec, url=url, limit="max_completion_tokens", price_factor=HALF))
    if kind == "anthropic":
        model = ServerModel.parse(spec, url=ANTHROPIC_URL, key_variable=ANTHROPIC_KEY, price_factor=HALF)
        return AnthropicBatches(model)
    raise UsageError(f"batch=1: '{kind}' has no batch endpoint; use {BATCH_EXAMPLE}")
