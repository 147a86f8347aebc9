"""Batch endpoints of OpenAI and Anthropic, which answer within 24 hours for half the price.

openai:MODEL?batch=1            uploads a file of requests to ``/files`` and has it answered by ``/batches``
anthropic:MODEL?batch=1         ``/messages/batches``

`BatchBackend.fill` sends all requests whose answers the ledger lacks, waits, and stores the answers in the ledger,
where the job then finds them. A file next to the ledger lists the batches that were sent, so that the same command
waits for them instead of paying twice. The id of a request is the address of its answer in the ledger. Bad answers are
requested once more, in a second batch. Requests that failed or expired remain without an answer, and the same command
sends them again.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from tellapart.boost.data_url import data_url
from tellapart.boost.job import Tally, read_text
from tellapart.boost.ledger import Ledger, address
from tellapart.boost.openai_server import KEYS, OpenAI, api_key, checked_address
from tellapart.boost.redaction import redact
from tellapart.boost.replies import moderated, read_answer
from tellapart.boost.spec_settings import model_settings, spec_settings
from tellapart.boost.types import Answer, BackendError, Request, Stage, UnansweredError
from tellapart.errors import PictureError, TellapartError, UsageError, need_extra
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json
from tellapart.utils.untrusted_text import clean_text

with suppress(ImportError):  # the extra boost is missing, which `Http` reports
    import httpx2

MAX_REQUESTS = 50_000  # requests per batch, OpenAI's limit; Anthropic's is 100,000
MAX_BYTES = 190 << 20  # bytes per batch; OpenAI's limit is 200 MB, Anthropic's 256 MB
POLL_SECONDS = 20.0
PUT_AT_ONCE = 256  # answers per flush of the ledger
RETRY_SECONDS = (1.0, 3.0, 10.0, 30.0, 60.0)
TIMEOUT = 600.0  # seconds, enough to upload 190 MB over a slow line
HALF = 0.5  # price of batched requests relative to single ones, for both companies
ANTHROPIC_URL, ANTHROPIC_KEY, ANTHROPIC_VERSION = "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "2023-06-01"
OPENAI_URL = "https://api.openai.com/v1"
BATCH_EXAMPLE = "openai:MODEL?batch=1 or anthropic:MODEL?batch=1"


@dataclass(frozen=True)
class BatchState:
    """State of a batch on the server. ``refusal``: why the server rejected the whole batch; "" if it did not."""

    ended: bool
    done: int
    total: int
    refusal: str = ""


Result = tuple[str, Answer | BackendError]  # the id of a request, and its answer


class BatchServer(Protocol):
    """A provider's batch endpoint. For ``name``, ``prices`` and ``most_choices``, see `Backend`."""

    name: str
    prices: tuple[float, float] | None
    most_choices: int

    def line(self, key: str, request: Request) -> bytes:
        """Returns one request as JSON. Raises `PictureError`."""
        ...

    def send(self, lines: BinaryIO) -> str:
        """Sends JSON lines as one batch, and returns its id."""
        ...

    def state(self, batch: str) -> BatchState:
        """Returns the state of a batch."""
        ...

    def results(self, batch: str) -> Iterator[Result]:
        """Yields the answers of a batch that has ended."""
        ...


class Http:
    """An HTTP client for one server. Repeats requests after network failures and the statuses 429 and 5xx."""

    def __init__(self, name: str, address: str, key: str, headers: Mapping[str, str]) -> None:
        need_extra("boost", "a batch endpoint", "httpx2")
        here = urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")
        self.name, self._key = name, key
        self._client = httpx2.Client(
            base_url=address, headers=dict(headers), timeout=TIMEOUT, follow_redirects=False, trust_env=not here
        )

    def json(self, method: str, path: str, content: Callable[[], dict[str, Any]] = dict) -> Any:
        """Returns the reply as JSON. ``content``: arguments of the request, built for each attempt."""
        for wait in (*RETRY_SECONDS, None):
            try:
                response = self._client.request(method, path, **content())
                if response.is_success:
                    return response.json()
                error = self._error(response)
            except httpx2.TransportError as broken:
                # Unless the first POST never reached the server, another one could pay for a second batch.
                again = method == "GET" or isinstance(broken, httpx2.ConnectError | httpx2.ConnectTimeout)
                words = str(broken) or type(broken).__name__
                error = BackendError(f"the server is unreachable or closed the connection ({words})", retry=again)
            except ValueError:
                error = BackendError("the reply is not valid JSON")
            if not error.retry or wait is None:
                break
            time.sleep(max(wait, error.after or 0.0))
        raise self._failed(error)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of a file on the server."""
        try:
            with self._client.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise self._failed(self._error(response))
                yield from (line.encode() for line in response.iter_lines() if line.strip())
        except httpx2.TransportError as broken:
            raise self._failed(BackendError(str(broken) or type(broken).__name__)) from None

    def answer(self, status: int, reply: bytes) -> Answer | BackendError:
        """Extracts the answer from one reply in a batch, or returns the error."""
        if words := moderated(status, reply, self._key):
            return Answer("", finish=f"content_filter: {self.clean(words)}")
        try:
            return read_answer(status, None, reply, self._key)
        except BackendError as error:
            return error

    def clean(self, text: str) -> str:
        """Reduces a server's text to one clean line and redacts the key."""
        return " ".join(clean_text(redact(text, self._key)).split())

    def _error(self, response: Any) -> BackendError:
        try:
            read_answer(response.status_code, response.headers.get("retry-after"), response.content, self._key)
        except BackendError as error:
            return error
        return BackendError(f"unexpected status {response.status_code}")

    def _failed(self, error: BackendError) -> TellapartError:
        return TellapartError(
            f"{self.name}: {self.clean(str(error))}; the answers so far are kept; run the same command again to resume"
        )


class OpenAIBatches:
    """OpenAI's batch endpoint; see `BatchServer`. Other servers with the same interface also work."""

    def __init__(self, model: str, url: str | None, settings: dict[str, str]) -> None:
        settings = {"limit": "max_completion_tokens", **settings}
        self._openai = OpenAI(model, url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL, settings)
        self.name, self.most_choices = self._openai.name, self._openai.most_choices
        self.prices = halved(self._openai.prices)
        self.sampling = self._openai.sampling
        key = self._openai.key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = Http(self.name, self._openai.address, key, headers)
        self._path = urlsplit(self._openai.address).path

    def line(self, key: str, request: Request) -> bytes:
        body = self._openai.fields(request)
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(line).encode()

    def send(self, lines: BinaryIO) -> str:
        def upload() -> dict[str, Any]:
            lines.seek(0)
            return {"data": {"purpose": "batch"}, "files": {"file": ("requests.jsonl", lines, "application/jsonl")}}

        file = self._http.json("POST", "/files", upload)["id"]
        content = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return str(self._http.json("POST", "/batches", lambda: {"json": content})["id"])

    def state(self, batch: str) -> BatchState:
        reply = self._http.json("GET", f"/batches/{batch}")
        counts = reply.get("request_counts") or {}
        errors = (reply.get("errors") or {}).get("data") or [{}]
        refusal = str(errors[0].get("message") or "no reason given") if reply["status"] == "failed" else ""
        ended = reply["status"] in ("completed", "expired", "cancelled", "failed")
        done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        return BatchState(ended, done, int(counts.get("total") or 0), self._http.clean(refusal))

    def results(self, batch: str) -> Iterator[Result]:
        reply = self._http.json("GET", f"/batches/{batch}")
        for file in filter(None, (reply.get("output_file_id"), reply.get("error_file_id"))):
            for line in self._http.lines(f"/files/{file}/content"):
                value = parse_json(line)
                response, error = value.get("response") or {}, value.get("error") or {}
                if response.get("body") is not None:
                    body = json.dumps(response["body"]).encode()
                    yield value["custom_id"], self._http.answer(int(response.get("status_code") or 0), body)
                else:
                    words = self._http.clean(str(error.get("message") or error.get("code") or "no response"))
                    yield value["custom_id"], BackendError(words)


class AnthropicBatches:
    """Anthropic's batch endpoint; see `BatchServer`. It has no seeds, no log-probabilities and one
    choice per request.
    """

    most_choices = 1

    def __init__(self, model: str, url: str | None, settings: dict[str, str]) -> None:
        if not model:
            raise UsageError("anthropic: missing model; use anthropic:MODEL?batch=1")
        self._model = model
        self.name, self.sampling, prices = model_settings("anthropic", model, settings)
        self.prices = halved(prices)
        key = api_key(settings.get("key"), self.name, ANTHROPIC_KEY)
        headers = {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION, "content-type": "application/json"}
        self._http = Http(self.name, checked_address(url or ANTHROPIC_URL, self.name), key, headers)

    def line(self, key: str, request: Request) -> bytes:
        messages: list[dict[str, Any]] = [{"role": one.role, "content": one.text} for one in request.messages]
        if request.picture is not None:
            kind, _, data = data_url(request.picture).removeprefix("data:").partition(";base64,")
            picture = {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            messages[-1]["content"] = [picture, {"type": "text", "text": messages[-1]["content"]}]
        body: dict[str, Any] = {"model": self._model, "max_tokens": request.max_tokens, "messages": messages}
        own = {"temperature": request.temperature, "top_p": request.top_p}
        body |= self.sampling | {name: value for name, value in own.items() if value is not None}
        return json.dumps({"custom_id": key, "params": body}).encode()

    def send(self, lines: BinaryIO) -> str:
        def body() -> Iterator[bytes]:
            lines.seek(0)
            yield b'{"requests": ['
            for number_, line in enumerate(lines):
                yield (b", " if number_ else b"") + line.rstrip(b"\n")
            yield b"]}"

        return str(self._http.json("POST", "/messages/batches", lambda: {"content": body()})["id"])

    def state(self, batch: str) -> BatchState:
        reply = self._http.json("GET", f"/messages/batches/{batch}")
        counts = {name: int(count) for name, count in (reply.get("request_counts") or {}).items()}
        total = sum(counts.values())
        return BatchState(reply["processing_status"] == "ended", total - counts.get("processing", 0), total)

    def results(self, batch: str) -> Iterator[Result]:
        for line in self._http.lines(f"/messages/batches/{batch}/results"):
            value = parse_json(line)
            result = value["result"]
            if result["type"] == "succeeded":
                yield value["custom_id"], self._answer(result["message"])
            else:
                error: Any = result.get("error") or {}
                error = error.get("error") or error
                yield value["custom_id"], BackendError(self._http.clean(str(error.get("message") or result["type"])))

    def _answer(self, message: Mapping[str, Any]) -> Answer:
        text = "".join(part.get("text") or "" for part in message["content"] if part.get("type") == "text")
        usage, finish = message.get("usage") or {}, str(message.get("stop_reason") or "stop")
        finish = "stop" if finish == "stop_sequence" else finish
        text = redact(text, self._http._key)
        return Answer(text, int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0), finish)


def halved(prices: tuple[float, float] | None) -> tuple[float, float] | None:
    """Returns the prices of batched requests."""
    return None if prices is None else (prices[0] * HALF, prices[1] * HALF)


def open_batches(spec: str) -> BatchBackend:
    """Opens the batch endpoint of ``openai:MODEL@URL?key=…`` or ``anthropic:MODEL``. Raises `UsageError` for other
    backends.
    """
    kind, _, rest = spec.partition(":")
    body, settings = spec_settings(rest, spec, KEYS)
    model, at, url = body.rpartition("@http")
    servers: dict[str, Callable[..., BatchServer]] = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}
    if kind not in servers:
        raise UsageError(f"batch=1: '{kind}' has no batch endpoint; use {BATCH_EXAMPLE}")
    return BatchBackend(servers[kind](model if at else body, f"http{url}" if at else None, settings))


@dataclass
class BatchBackend:
    """A backend whose requests are all answered in advance, by `fill`."""

    server: BatchServer
    tally: Tally = field(default_factory=Tally)
    _failures: dict[str, str] = field(default_factory=dict)  # by item
    # maps addresses to (item, stage, attempt)
    _places: dict[str, tuple[Item, Stage, int]] = field(default_factory=dict)
    _following: dict[str, list[str]] = field(default_factory=dict)  # addresses of the other choices

    def __post_init__(self) -> None:
        self.name, self.prices, self.most_choices = self.server.name, self.server.prices, self.server.most_choices
        self.sampling: Mapping[str, float] = getattr(self.server, "sampling", {})

    def complete(self, request: Request) -> Answer:
        """Raises `UnansweredError`, because an answer, if there were one, would be in the ledger."""
        reason = self._failures.get(request.item, "the batch contains no answer")
        raise UnansweredError(f"{self.name}: {reason}")

    def fill(self, stages: Sequence[Stage], items: Sequence[Item], ledger: Ledger) -> None:
        """Requests the answers that the ledger lacks, and returns when all batches have ended.

        stages: samples of the answer to one question, so that none depends on another's answer. Raises `TellapartError`
        if the server rejects a batch or cannot be reached; the same command resumes.
        """
        log = BatchLog(ledger.path.with_name(ledger.path.name.removesuffix(".ledger.jsonl") + ".batches.json"))
        for attempt in (0, 1):
            lacking = list(self._lacking(stages, items, ledger, attempt))
            if log.pending(self.name):
                self._collect(log, ledger)
                lacking = list(self._lacking(stages, items, ledger, attempt))
            if lacking:
                self._send(lacking, log)
                self._collect(log, ledger)

    def _lacking(
        self, stages: Sequence[Stage], items: Sequence[Item], ledger: Ledger, attempt: int
    ) -> Iterator[tuple[str, Request]]:
        """Yields the requests whose answers the ledger lacks and, after the first attempt, retries of bad answers."""
        for item in items:
            with suppress(PictureError):  # the job reports it
                yield from self._first(stages, item, ledger) if not attempt else self._again(stages, item, ledger)

    def _first(self, stages: Sequence[Stage], item: Item, ledger: Ledger) -> Iterator[tuple[str, Request]]:
        requests = [stage.build_request(item, {}) for stage in stages]
        keys = [address(stage, item, one, 0) for stage, one in zip(stages, requests, strict=True)]
        self._places |= {key: (item, stage, 0) for key, stage in zip(keys, stages, strict=True)}
        for start in range(0, len(keys), self.most_choices):
            some = slice(start, start + self.most_choices)
            self._following[keys[start]] = keys[some][1:]
            lacking = [ledger.get(key) is None for key in keys[some]]
            if all(lacking):  # one request for all choices
                yield keys[start], replace(requests[start], n=len(lacking))
            else:
                yield from (pair for pair, no in zip(zip(keys[some], requests[some], strict=True), lacking) if no)  # noqa: B905

    def _again(self, stages: Sequence[Stage], item: Item, ledger: Ledger) -> Iterator[tuple[str, Request]]:
        for stage in stages:
            request = stage.build_request(item, {})
            answer = ledger.get(address(stage, item, request, 0))
            if answer is None:
                continue
            text, why = read_text(stage, item, {}, request, answer)
            if why is not None:
                request = stage.build_retry(item, {}, text)
                key = address(stage, item, request, 1)
                self._places[key] = item, stage, 1
                if ledger.get(key) is None:
                    yield key, request

    def _send(self, lacking: Sequence[tuple[str, Request]], log: BatchLog) -> None:
        """Sends the requests in as few batches as the limits allow."""
        lines = self._lines(lacking)
        line = next(lines, None)
        while line is not None:
            with tempfile.TemporaryFile() as file:
                count = 0
                while line is not None and (not count or self._fits(count, file.tell() + len(line))):
                    file.write(line)
                    count, line = count + 1, next(lines, None)
                log.add(self.server.send(file), self.name)
        say(
            f"{self.name}: sent {len(lacking):,} requests as a batch, which may take 24 hours; after "
            "Ctrl-C, run the same command again to wait for it"
        )

    def _lines(self, lacking: Sequence[tuple[str, Request]]) -> Iterator[bytes]:
        for key, request in lacking:
            with suppress(PictureError):  # the job reports it
                yield self.server.line(key, request) + b"\n"

    @staticmethod
    def _fits(requests: int, size: int) -> bool:
        return requests < MAX_REQUESTS and size <= MAX_BYTES

    def _collect(self, log: BatchLog, ledger: Ledger) -> None:
        """Waits for the batches and stores their answers."""
        pending, shown = log.pending(self.name), ""
        while pending:
            states = {batch: self.server.state(batch) for batch in pending}
            line = ", ".join(f"{batch} {state.done:,} of {state.total:,}" for batch, state in states.items())
            if line != shown:
                say(f"{self.name}: {line} done")
                shown = line
            for batch, state in states.items():
                if state.refusal:
                    log.end(batch)
                    raise TellapartError(
                        f"{self.name}: the server rejected batch {batch}: {state.refusal}; fix the "
                        "problem and run the same command again"
                    )
                if state.ended:
                    self._store(self.server.results(batch), ledger)
                    log.end(batch)
            pending = log.pending(self.name)
            if pending:
                time.sleep(POLL_SECONDS)

    def _store(self, results: Iterator[Result], ledger: Ledger) -> None:
        """Adds answers to the ledger, and remembers why others are missing."""
        waiting: list[tuple[str, Answer, Mapping[str, str]]] = []
        for key, result in results:
            place = self._places.get(key)
            if isinstance(result, BackendError):
                if place is not None:
                    self._failures[place[0].id] = f"the batch contains no answer: {result}"
                continue
            for at, answer in zip([key, *self._following.get(key, ())], [result, *result.others], strict=False):
                own = self._places.get(at)
                note = {"stage": own[1].name if own else "", "model": self.name, "id": own[0].id if own else ""}
                waiting.append((at, replace(answer, others=()), note))
            self.tally += Tally.of(result, self, 1 + len(result.others))
            if len(waiting) >= PUT_AT_ONCE:
                ledger.put_all(waiting)
                waiting = []
        ledger.put_all(waiting)


class BatchLog:
    """Submitted batches whose answers are not in the ledger yet: a JSON object from id to model."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pending(self, name: str) -> list[str]:
        """Returns the batches of this model."""
        return [batch for batch, model in self._read().items() if model == name]

    def add(self, batch: str, name: str) -> None:
        """Records a batch; it is on disk when this returns."""
        replace_text(self.path, json.dumps(self._read() | {batch: name}, indent=1) + "\n")

    def end(self, batch: str) -> None:
        """Removes a batch whose answers are in the ledger, or that the server rejected."""
        left = {id_: model for id_, model in self._read().items() if id_ != batch}
        replace_text(self.path, json.dumps(left, indent=1) + "\n")

    def _read(self) -> dict[str, str]:
        batches: dict[str, str] = parse_json(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        return batches
