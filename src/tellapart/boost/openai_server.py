"""A model on an OpenAI-compatible server.

Requests are sent as ``POST URL/chat/completions`` with the picture as a data URL. A reply becomes either an `Answer` or
a `BackendError` that says whether a retry can help. ``temperature`` and ``top_p`` are sent only if they are set. A
field that the server rejects by name is left out of all later requests, and this is reported once. The first request
for an optional feature (several choices, log-probabilities) shows whether the server supports it. The API key is
read from the environment, sent in one header, and redacted, whole or in part, from the server's replies before anything
is truncated, stored or shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tellapart.boost.data_url import data_url
from tellapart.boost.redaction import redact
from tellapart.boost.replies import failure, moderated, read_answer, read_scores, refused_field
from tellapart.boost.spec_settings import SAMPLING, model_settings, number_setting
from tellapart.boost.types import IN_USER_TURN, REDACTED, Answer, BackendError, LacksFeature, Request
from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.messages import say
from tellapart.utils.untrusted_text import clean_text

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
KEYS = ("key", "timeout", "limit", "in", "out", "temperature", "top_p")
(
    "Settings: the environment variable with the API key; timeout of an answer in seconds; the field "
    "that limits the length of an answer;\nprices per million input and output tokens, for cost "
    "estimates; sampling for requests that do not set it themselves."
)
LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
OPTIONAL = (*LIMITS, *SAMPLING, "seed", "response_format")  # fields to leave out if the server rejects them
TIMEOUT, CONNECT_TIMEOUT = 120.0, 10.0
ROLES = re.compile(r"\b(system|roles?)\b", re.IGNORECASE)  # how templates word the rejection of a system prompt
MOST_CHOICES = 128  # the limit on OpenAI's servers
REFUSALS = (400, 422, 501)  # and 500 about a choice, llama.cpp's reply to n = 2 in 2024
LACKS = {
    "logprobs": "the server does not return log-probabilities of its answers (logprobs)",
    "scored": (
        "the server does not return log-probabilities of a given caption for a picture "
        "(prompt_logprobs, which vLLM supports for text only); remove --drop-guesses, or use "
        "--decoding confidence=0.4, which only requires logprobs"
    ),
}
LARGEST_REPLY = 8 << 20  # bytes; a caption's reply is about a thousand times smaller


def _wants(request: Request) -> set[str]:
    """Returns the optional features that a request needs."""
    found = {"n": request.n > 1, "logprobs": request.logprobs, "scored": request.scored}
    return {name for name, asked in found.items() if asked}


class OpenAI:
    """A model on a server, accessed with OpenAI's SDK.

    Thread-safe; each request uses one connection. The first request for an optional feature (`_wants`) is sent alone;
    the others wait for its result.

    name: excludes the address, so that a model's answers stay valid when it moves to another server.
    sampling: sampling settings from the specification; part of the name.
    most_choices: largest known number of choices per request.
    """

    def __init__(self, model: str, url: str | None = None, settings: dict[str, str] | None = None) -> None:
        settings = settings or {}
        if not model:
            raise UsageError("openai: missing model; use openai:MODEL@http://127.0.0.1:8000/v1")
        self.model = model
        self.name, self.sampling, self.prices = model_settings("openai", model, settings)
        self.address = checked_address(url or os.environ.get(URL_VARIABLE, ""), self.name)
        self.key = api_key(settings.get("key"), self.name)
        self.timeout = number_setting(settings, "timeout", TIMEOUT) or TIMEOUT
        self._limit = settings.get("limit", "max_tokens")
        self._client = self._new_client()
        self._loop = _loop()
        weakref.finalize(self, _close, self._client, self._loop)
        self._refused: dict[str, str] = {}  # fields no longer sent, with the server's message
        self._no_system = ""  # the server's rejection of system prompts, which then go into the user turn
        self._lock, self._first = threading.Lock(), threading.Lock()
        self.most_choices, self._served = MOST_CHOICES, False
        self._has: set[str] = set()  # features that the server supports, or for which there is a replacement

    def complete(self, request: Request) -> Answer:
        """Returns one answer within the timeout. Raises `BackendError`."""
        if _wants(request) <= self._has:
            return self._complete(request)
        with self._first:
            return self._complete(request)

    def _complete(self, request: Request) -> Answer:
        request = replace(request, n=min(request.n, self.most_choices))
        no_system, refused = self._no_system, dict(self._refused)
        request = request.without_system() if no_system else request
        fields = self.fields(request)
        while True:
            sent = {LIMITS.get(name, "") if name in refused else name: value for name, value in fields.items()}
            status, retry_after, reply = self._exchange({name: value for name, value in sent.items() if name})
            if words := moderated(status, reply, self.key):
                return Answer("", finish=f"content_filter: {self._clean(words)}")
            try:
                answer = read_answer(status, retry_after, reply, self.key)
            except BackendError as error:
                words = self._clean(str(error))
                if request.messages[0].role == "system" and status in (400, 422, 500) and ROLES.search(words):
                    no_system, request = words, request.without_system()
                    fields = self.fields(request)
                    continue
                lacking = status in REFUSALS or (status == 500 and "choice" in words)
                if request.scored and "scored" not in self._has and (lacking or status >= 500):
                    if not lacking:  # a server that also fails without the feature is down
                        self._complete(replace(request, messages=request.messages[:-1], scored=False))
                    raise self._lacking("scored", f": {words}") from None
                if status == 403 and self._served and error.fatal:  # the request is at fault, not the key
                    error = failure(words, error, fatal=False)
                named = refused_field(status, reply, [name for name in OPTIONAL if name in sent])
                if named is None and lacking and self._unknown(request):
                    return self._with_less(request, words)
                if named is None or named in refused or LIMITS.get(named) in refused:
                    raise failure(f"{self.name}: {words}", error) from None
                refused[named] = words
                continue
            self._served = True
            self._learn(refused, no_system)
            return self._found(request, answer, reply)

    def _unknown(self, request: Request) -> set[str]:
        return _wants(request) - self._has

    def _lacking(self, what: str, words: str = "") -> LacksFeature:
        """Returns the error for a server that lacks a feature."""
        return LacksFeature(f"{self.name}: {LACKS[what]}{words}")

    def _with_less(self, request: Request, words: str) -> Answer:
        """Repeats a rejected request without optional features. Raises `BackendError`."""
        if request.n > 1:
            answer = self._complete(replace(request, n=1))
            self._learn_choices(1, f": {words}")
            return answer
        answer = self._complete(replace(request, logprobs=False))  # works only if those were rejected
        if request.lenient:
            self._learn({"logprobs": words}, "")
            return answer
        raise self._lacking("logprobs", f": {words}")

    def _found(self, request: Request, answer: Answer, reply: bytes) -> Answer:
        """Returns the answer with the requested features. Raises `BackendError` if the server lacks one."""
        unknown = self._unknown(request)
        if request.scored:
            answer = replace(answer, text="", finish="stop", tokens=read_scores(reply, request.messages[-1].text))
            if not answer.tokens and "scored" in unknown:
                raise self._lacking("scored")
        elif request.logprobs and not (answer.tokens or request.lenient) and answer.text and "logprobs" in unknown:
            raise self._lacking("logprobs")
        if request.n > 1 and len(answer.others) + 1 < request.n:
            self._learn_choices(len(answer.others) + 1)
        if answer.text or answer.tokens:  # an empty answer proves nothing
            with self._lock:
                self._has |= unknown
        return replace(answer, others=answer.others[: request.n - 1])

    def _learn_choices(self, most: int, words: str = "") -> None:
        with self._lock:
            fewer = most < self.most_choices
            self.most_choices, self._has = min(most, self.most_choices), self._has | {"n"}
        if fewer:
            each = "one choice" if most == 1 else f"{most} choices"
            say(f"{self.name}: the server returns {each} per request ('n'{words}), so more requests are sent")

    def _learn(self, refused: Mapping[str, str], no_system: str) -> None:
        """Remembers the changes that made a request succeed, for all later requests, and reports them once."""
        with self._lock:
            told, self._no_system = self._no_system, self._no_system or no_system
            new = {name: words for name, words in refused.items() if name not in self._refused}
            self._refused = {**self._refused, **new}
        for name, words in new.items():
            instead = f"sent as '{LIMITS[name]}'" if name in LIMITS else "omitted"
            say(f"{self.name}: '{name}' is {instead} from now on: {words}")
        if no_system and not told:
            say(f"{self.name}: {IN_USER_TURN} from now on: {no_system}")

    def _exchange(self, body: dict[str, Any]) -> tuple[int, str | None, bytes]:
        """Returns the reply's status, ``Retry-After`` and body, within the timeout. Raises `BackendError`."""
        import openai

        try:
            return asyncio.run_coroutine_threadsafe(self._post(body), self._loop).result()
        except openai.APIStatusError as error:
            return error.status_code, error.response.headers.get("retry-after"), error.response.content
        except (TimeoutError, openai.APITimeoutError):
            raise BackendError(f"{self.name}: no answer within {self.timeout:g} s", retry=True) from None
        except (openai.APIConnectionError, ConnectionError) as error:
            detail = self._clean(str(error.__cause__)) or type(error.__cause__).__name__
            server = urlsplit(self.address).netloc
            raise BackendError(
                f"{self.name}: {server} is unreachable or closed the connection ({detail})", retry=True
            ) from None

    async def _post(self, body: dict[str, Any]) -> tuple[int, str | None, bytes]:
        """Posts a request with one deadline for connection, headers and body; the SDK's timeout is per read."""
        import openai

        reply = bytearray()
        create = self._client.chat.completions.with_streaming_response.create
        known = {name: body.pop(name) for name in ("model", "messages")}
        headers = {} if self.key else {"Authorization": openai.Omit()}
        request = create(**known, extra_body=body, extra_headers=headers)
        async with asyncio.timeout(self.timeout), request as response:
            parts = response.iter_bytes()
            while len(reply) <= LARGEST_REPLY:
                try:
                    reply += await anext(parts)
                except StopAsyncIteration:
                    return response.status_code, response.headers.get("retry-after"), bytes(reply)
                except Exception as error:  # the SDK does not wrap errors while reading the body
                    raise ConnectionError from error
        raise BackendError(f"{self.name}: the answer exceeds {LARGEST_REPLY >> 20} MiB", retry=True)

    def fields(self, request: Request) -> dict[str, Any]:
        """Returns the body of a request. Raises `PictureError`."""
        messages: list[dict[str, Any]] = [{"role": m.role, "content": m.text} for m in request.messages]
        if request.picture is not None:
            last = max(n for n, message in enumerate(messages) if message["role"] == "user")
            shown = {"type": "image_url", "image_url": {"url": data_url(request.picture)}}
            messages[last]["content"] = [shown, {"type": "text", "text": messages[last]["content"]}]
        body: dict[str, Any] = {"model": self.model, "messages": messages, self._limit: request.max_tokens}
        own = {"temperature": request.temperature, "top_p": request.top_p, "seed": request.seed}
        body |= self.sampling | {name: value for name, value in own.items() if value is not None}
        if request.stop:
            body["stop"] = list(request.stop)
        if request.n > 1:
            body["n"] = request.n
        if request.logprobs:
            body["logprobs"] = True
        if request.schema:
            body["response_format"] = response_format(request.schema)
        if request.scored:
            body |= {"prompt_logprobs": 0, "add_generation_prompt": False, "continue_final_message": True}
        return body

    def _clean(self, text: str) -> str:
        """Reduces a text to one clean line, and redacts the key, which some servers repeat."""
        text = clean_text(redact(text, self.key))
        return " ".join((text.replace(self.key, REDACTED) if self.key else text).split())

    def _new_client(self) -> Any:
        try:
            import openai
        except ImportError:
            raise MissingExtra("boost", "a server's model") from None
        # Ignores proxies from the environment for this machine, and redirects, which would send the key elsewhere.
        here = urlsplit(self.address).hostname in ("localhost", "127.0.0.1", "::1")
        client: Any = openai.AsyncOpenAI(
            api_key=self.key,
            admin_api_key="",
            base_url=self.address,
            timeout=openai.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout)),
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, trust_env=not here),
        )
        client.organization = client.project = None  # from the environment, for OpenAI's servers
        return client


def response_format(schema: str) -> dict[str, Any]:
    """Returns the request field that makes OpenAI's and vLLM's servers answer in a JSON schema."""
    content = json.loads(schema)
    strict = {"strict": True} if is_strict(content) else {}
    return {"type": "json_schema", "json_schema": {"name": "caption", "schema": content, **strict}}


def is_strict(schema: Any) -> bool:
    """Returns whether OpenAI's strict mode accepts the schema: objects require all their properties, and allow no
    others.
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        names = set(properties) if isinstance(properties, dict) else set()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    return all(map(is_strict, schema.values()))


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop for all servers. It runs in its own thread, so that requests can be cancelled."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # requests that are interrupted at exit
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _close(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Closes a client's connections, in the thread that uses them."""
    asyncio.run_coroutine_threadsafe(client.close(), loop)


def checked_address(url: str, name: str) -> str:
    """Validates an address and returns it without the last slash. Raises `UsageError`, e.g. for credentials."""
    if not url:
        raise UsageError(f"{name}: missing server; use {name}@http://127.0.0.1:8000/v1, or set {URL_VARIABLE}")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username or parts.password or "?" in url or "#" in url:
        raise UsageError(
            f"{name}: the server's URL must not contain a user, password or '?'; API keys are read from {KEY_VARIABLE}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{name}: '{url}' is not a server URL; expected one such as http://127.0.0.1:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


def api_key(variable: str | None, name: str, default: str = KEY_VARIABLE) -> str:
    """Reads the API key from an environment variable; empty if ``default`` is unset (local servers need no key)."""
    key = os.environ.get(variable or default, "").strip()
    if variable and not key:
        raise UsageError(
            f"{name}: the environment variable {variable} is not set; run: export {variable}=…, or remove key="
        )
    if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise UsageError(
            f"{name}: {variable or default} does not contain a valid key (spaces or unprintable characters)"
        )
    return key
