"""Any server that speaks OpenAI's chat completions: vLLM, llama.cpp, Ollama, ``transformers serve``, a hosted one.

``POST URL/chat/completions`` with the picture as a data URL. What comes back is either an `Answer` or a `BackendError`
that says whether asking again may help. ``temperature`` and ``top_p`` are sent only where somebody set them; a field
that the server refuses by name is left out of all further requests, which a line says. The key is read from the
environment, goes into one header, and is struck out of whatever the server says.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tellapart.boost.backends.pictures import data_url
from tellapart.boost.backends.reply import failure, read_answer, refused_field
from tellapart.boost.backends.settings import number
from tellapart.boost.redact import REDACTED, redact
from tellapart.boost.types import Answer, BackendError, Request
from tellapart.errors import MissingExtra, UsageError
from tellapart.utils.messages import say
from tellapart.utils.text import clean_text

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
KEYS = ("key", "timeout", "limit", "in", "out", "temperature", "top_p")
"""Settings: the variable that holds the key; seconds for one answer; the name of the field that bounds an answer;
prices of a million tokens in and out, for the cost; sampling of requests that set none themselves."""
SAMPLING = ("temperature", "top_p")
LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
TIMEOUT, CONNECT_TIMEOUT = 120.0, 10.0
LARGEST_REPLY = 8 << 20  # bytes; a caption's is a thousandth of that


class OpenAI:
    """A model behind a server. ``name`` has no address: a model that moves to another machine keeps its answers.

    Several threads may ask at once; each request holds one connection. ``sampling``: what the specification sets, which
    is part of the name.
    """

    def __init__(self, model: str, url: str | None = None, settings: dict[str, str] | None = None) -> None:
        settings = settings or {}
        if not model:
            raise UsageError("openai: names no model; type openai:MODEL@http://127.0.0.1:8000/v1")
        self.sampling = {key: number(settings, key, 0.0) for key in SAMPLING if key in settings}
        typed = "&".join(f"{key}={value:g}" for key, value in self.sampling.items())
        self.model, self.name = model, f"openai:{model}" + (f"?{typed}" if typed else "")
        self._url = _checked(url or os.environ.get(URL_VARIABLE, ""), self.name) + "/chat/completions"
        self._key = _key(settings.get("key"), self.name)
        self.timeout = number(settings, "timeout", TIMEOUT) or TIMEOUT
        self._limit = settings.get("limit", "max_tokens")
        priced = "in" in settings or "out" in settings
        self.prices = (number(settings, "in", 0.0), number(settings, "out", 0.0)) if priced else None
        self._client = self._new_client()
        self._loop = _loop()
        self._refused: dict[str, str] = {}  # fields that are not sent any more, and what the server said
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Answer:
        """One answer, within the time set. Raises `BackendError`."""
        fields, refused = self._fields(request), dict(self._refused)
        while True:
            sent = {LIMITS.get(name, "") if name in refused else name: value for name, value in fields.items()}
            status, retry_after, reply = self._exchange({name: value for name, value in sent.items() if name})
            try:
                answer = read_answer(status, retry_after, reply, self._key)
            except BackendError as error:
                words = self._clean(str(error))
                named = refused_field(status, reply, [name for name in (*LIMITS, *SAMPLING, "seed") if name in sent])
                if named is None or named in refused or LIMITS.get(named) in refused:
                    raise failure(f"{self.name}: {words}", error) from None
                refused[named] = words
                continue
            self._learn(refused)
            return answer

    def _learn(self, refused: Mapping[str, str]) -> None:
        """Change all further requests as the one that was answered, and say so once."""
        with self._lock:
            new = {name: words for name, words in refused.items() if name not in self._refused}
            self._refused = {**self._refused, **new}
        for name, words in new.items():
            instead = f"sent as '{LIMITS[name]}'" if name in LIMITS else "left out"
            say(f"{self.name}: '{name}' is {instead} from now on: {words}")

    def _exchange(self, body: dict[str, Any]) -> tuple[int, str | None, bytes]:
        """Status, ``Retry-After`` and body of the reply, within the time set. Raises `BackendError`."""
        import httpx2

        try:
            return asyncio.run_coroutine_threadsafe(self._post(json.dumps(body).encode()), self._loop).result()
        except (TimeoutError, httpx2.TimeoutException):
            raise BackendError(f"{self.name}: no answer within {self.timeout:g} s", retry=True) from None
        except httpx2.HTTPError as error:
            detail = self._clean(str(error)) or type(error).__name__
            raise BackendError(
                f"{self.name}: {self._server} broke off or is not there ({detail})", retry=True
            ) from None

    async def _post(self, body: bytes) -> tuple[int, str | None, bytes]:
        """One deadline for connection, headers and body: httpx's own limit is per read, and a 1xx starts it anew."""
        reply = bytearray()
        async with asyncio.timeout(self.timeout), self._client.stream("POST", self._url, content=body) as response:
            async for part in response.aiter_bytes():
                reply += part
                if len(reply) > LARGEST_REPLY:
                    raise BackendError(f"{self.name}: an answer of more than {LARGEST_REPLY >> 20} MiB", retry=True)
            return response.status_code, response.headers.get("retry-after"), bytes(reply)

    def _fields(self, request: Request) -> dict[str, Any]:
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
        return body

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._url.removesuffix("/chat/completions")

    @property
    def _server(self) -> str:
        return urlsplit(self._url).netloc

    def _clean(self, text: str) -> str:
        """One line with the key removed: some servers repeat it."""
        text = clean_text(redact(text, self._key))
        return " ".join((text.replace(self._key, REDACTED) if self._key else text).split())

    def _new_client(self) -> Any:
        try:
            import httpx2
        except ImportError:
            raise MissingExtra("boost", "a server's model") from None
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        # Proxies of the environment do not lead to this machine itself.
        here = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=not here,
        )


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all servers, in a thread of its own: what it runs can be cancelled at a deadline."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # requests that the end of the program cuts off
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _checked(url: str, name: str) -> str:
    """An address without credentials and without the last slash. Raises `UsageError`."""
    if not url:
        raise UsageError(f"{name}: on which server? type {name}@http://127.0.0.1:8000/v1, or set {URL_VARIABLE}")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.username or parts.password or "?" in url or "#" in url:
        raise UsageError(
            f"{name}: a server's address has no user, password or '?' in it; keys come from {KEY_VARIABLE}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{name}: '{url}' is no server's address; type one such as http://127.0.0.1:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


def _key(variable: str | None, name: str) -> str:
    """The key that an environment variable holds; none where `KEY_VARIABLE` is not set (servers at home need none)."""
    key = os.environ.get(variable or KEY_VARIABLE, "").strip()
    if variable and not key:
        raise UsageError(f"{name}: the environment has no {variable}; type: export {variable}=…, or leave out key=")
    if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise UsageError(f"{name}: what {variable or KEY_VARIABLE} holds is no key (blanks or unprintable characters)")
    return key
