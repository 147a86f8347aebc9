"""A model on an OpenAI-compatible server.

Requests are sent as ``POST URL/chat/completions``. A reply becomes either an `Answer` or a `BackendError` that says
whether a retry can help. If the server rejects a field by name, the field is left out of all later requests, which is
reported once. The first request for an optional feature (several choices, log-probabilities) shows whether the server
supports it. The API key is sent in one header. If a server's reply repeats the key or part of it, that text is redacted
before anything is truncated, stored or shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from tellapart.boost.chat_body import chat_body
from tellapart.boost.redaction import readable
from tellapart.boost.replies import Reply
from tellapart.boost.server_model import SAMPLING, URL_VARIABLE, ServerModel
from tellapart.boost.types import IN_USER_TURN, Answer, BackendError, LacksFeature, Request
from tellapart.errors import MissingExtra
from tellapart.utils.messages import say

LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
OPTIONAL = (*LIMITS, *SAMPLING, "seed", "response_format")  # fields to leave out if the server rejects them
CONNECT_TIMEOUT = 10.0  # seconds
SYSTEM = "system"  # represents the system prompt among the names of rejected fields
ROLES = re.compile(r"\b(system|roles?)\b", re.IGNORECASE)  # words in templates' errors about a system prompt
MOST_CHOICES = 128  # the limit on OpenAI's servers
REFUSALS = (400, 422, 501)  # and 500 if the message mentions a choice: llama.cpp's reply to n = 2 in 2024
LACKS = {
    "logprobs": "the server does not return log-probabilities of its answers (logprobs)",
    "scored": (
        "the server does not return log-probabilities of a given caption for a picture "
        "(prompt_logprobs, which vLLM supports for text only); remove --drop-guesses, or use "
        "--decoding confidence=0.4, which only requires logprobs"
    ),
}
LARGEST_REPLY = 8 << 20  # bytes; a caption's reply is about a thousand times smaller


class OpenAI:
    """A model on a server, accessed through OpenAI's SDK.

    Thread-safe. Each request uses one connection. While the first request for an optional feature is running, other
    requests for that feature wait for its result.

    most_choices: the maximum number of choices per request, as far as it is known.
    """

    def __init__(self, model: ServerModel) -> None:
        self.model, self.name, self.address, self.timeout = model, model.name, model.address, model.timeout
        self.prices, self.sampling, self.most_choices = model.prices, model.sampling, MOST_CHOICES
        self._client, self._loop = _new_client(model), _event_loop()
        weakref.finalize(self, _close, self._client, self._loop)
        self._lock, self._first = threading.Lock(), threading.Lock()
        self._served = False
        self._rejected: dict[str, str] = {}  # from each field that is no longer sent to the server's message
        self._settled: set[str] = set()  # features that the server supports, or whose absence has been handled

    @classmethod
    def open(cls, spec: str) -> OpenAI:
        """Opens the model that ``openai:MODEL@URL?key=value`` specifies. Raises `UsageError` if it is invalid."""
        return cls(ServerModel.parse(spec, url=os.environ.get(URL_VARIABLE, "")))

    def complete(self, request: Request) -> Answer:
        """Returns one answer. Raises `BackendError` if the server returns none within the timeout."""
        if not self._unsettled(request):
            return self._complete(request)
        with self._first:
            return self._complete(request)

    def _unsettled(self, request: Request) -> set[str]:
        """Returns the features that the request needs and whose support is not known yet."""
        features = {"n": request.n > 1, "logprobs": request.logprobs, "scored": request.scored}
        return {name for name, needed in features.items() if needed} - self._settled

    def _complete(self, request: Request) -> Answer:
        request = replace(request, n=min(request.n, self.most_choices))
        rejected = dict(self._rejected)
        while True:
            sent = request.without_system() if SYSTEM in rejected else request
            fields = chat_body(self.model, sent).items()
            body = {LIMITS.get(name, "") if name in rejected else name: value for name, value in fields}
            body.pop("", None)
            reply = self._exchange(body)
            if words := reply.moderation:
                return Answer("", finish=f"content_filter: {words}")
            try:
                answer = reply.answer()
                break
            except BackendError as error:
                words = str(error)
                name = self._rejected_part(request, body, reply, words, rejected)
                if name is None:  # after a 403, the request is at fault if the key has worked before
                    fatal = error.fatal and not (reply.status == 403 and self._served)
                    raise error.reworded(f"{self.name}: {words}", fatal=fatal) from None
                rejected[name] = words
        self._served = True
        if request.logprobs and "logprobs" in rejected and not request.lenient:  # the answer has no log-probabilities
            raise self._lacking("logprobs", rejected["logprobs"])
        self._leave_out(rejected)
        return self._with_features(request, answer, reply, rejected)

    def _rejected_part(
        self, request: Request, body: Mapping[str, Any], reply: Reply, words: str, rejected: Mapping[str, str]
    ) -> str | None:
        """Returns which field to leave out of a failed request, or None if leaving one out cannot help.

        Raises `BackendError` if the server lacks a required feature.
        """
        status = reply.status
        has_system = request.messages[0].role == "system" and SYSTEM not in rejected
        if has_system and status in (400, 422, 500) and ROLES.search(words):
            return SYSTEM
        refused = status in REFUSALS or (status == 500 and "choice" in words)
        unsettled = self._unsettled(request)
        if "scored" in unsettled and (refused or status >= 500):
            if not refused:  # if the server also fails without the feature, it is down, and this call raises the error
                self._complete(replace(request, messages=request.messages[:-1], scored=False))
            raise self._lacking("scored", words)
        named = reply.refused_field([name for name in OPTIONAL if name in body])
        if named is not None:
            return None if named in rejected or LIMITS.get(named) in rejected else named
        return next((name for name in ("n", "logprobs") if refused and name in unsettled and name in body), None)

    def _with_features(self, request: Request, answer: Answer, reply: Reply, rejected: Mapping[str, str]) -> Answer:
        """Returns the answer with the requested features. Raises `BackendError` if the server lacks one."""
        unsettled = self._unsettled(request)
        if request.scored:
            answer = replace(answer, text="", finish="stop", tokens=reply.scores(request.messages[-1].text))
            if not answer.tokens and "scored" in unsettled:
                raise self._lacking("scored")
        elif "logprobs" in unsettled and answer.text and not (answer.tokens or request.lenient):
            raise self._lacking("logprobs")
        choices = len(answer.others) + 1
        if choices < request.n:
            self._limit_choices(choices, rejected.get("n", ""))
        if answer.text or answer.tokens:  # an empty answer proves nothing
            with self._lock:
                self._settled |= unsettled
        return replace(answer, others=answer.others[: request.n - 1])

    def _lacking(self, feature: str, words: str = "") -> LacksFeature:
        return LacksFeature(": ".join(filter(None, (self.name, LACKS[feature], words))))

    def _limit_choices(self, most: int, words: str) -> None:
        with self._lock:
            fewer = most < self.most_choices
            self.most_choices = min(most, self.most_choices)
            self._settled.add("n")
        if fewer:
            each, why = "one choice" if most == 1 else f"{most} choices", f": {words}" if words else ""
            say(f"{self.name}: the server returns {each} per request ('n'{why}), so more requests are sent")

    def _leave_out(self, rejected: Mapping[str, str]) -> None:
        """Omits the rejected fields from all later requests, and reports each of them once."""
        with self._lock:
            new = {name: words for name, words in rejected.items() if name not in self._rejected}
            self._rejected |= new
        for name, words in new.items():
            what = f"'{name}' is sent as '{LIMITS[name]}'" if name in LIMITS else f"'{name}' is omitted"
            if name != "n":  # which `_limit_choices` reports
                say(f"{self.name}: {IN_USER_TURN if name == SYSTEM else what} from now on: {words}")

    def _exchange(self, body: dict[str, Any]) -> Reply:
        """Returns the reply. Raises `BackendError` if none arrives in time."""
        import openai

        try:
            return asyncio.run_coroutine_threadsafe(self._post(body), self._loop).result()
        except openai.APIStatusError as error:
            return self._reply(error.response, error.response.content)
        except (TimeoutError, openai.APITimeoutError):
            raise BackendError(f"{self.name}: no answer within {self.timeout:g} s", retry=True) from None
        except (openai.APIConnectionError, ConnectionError) as error:
            detail = readable(str(error.__cause__), self.model.key) or type(error.__cause__).__name__
            server = urlsplit(self.address).netloc
            raise BackendError(
                f"{self.name}: {server} is unreachable or closed the connection ({detail})", retry=True
            ) from None

    async def _post(self, body: dict[str, Any]) -> Reply:
        """Posts a request with a single deadline for connection, headers and body, because the SDK's timeout applies to
        each read.
        """
        import openai

        content = bytearray()
        create = self._client.chat.completions.with_streaming_response.create
        known = {name: body.pop(name) for name in ("model", "messages")}
        headers = {} if self.model.key else {"Authorization": openai.Omit()}
        request = create(**known, extra_body=body, extra_headers=headers)
        async with asyncio.timeout(self.timeout), request as response:
            parts = response.iter_bytes()
            while len(content) <= LARGEST_REPLY:
                try:
                    content += await anext(parts)
                except StopAsyncIteration:
                    return self._reply(response, bytes(content))
                except Exception as error:  # the SDK does not wrap errors while reading the body
                    raise ConnectionError from error
        raise BackendError(f"{self.name}: the answer exceeds {LARGEST_REPLY >> 20} MiB", retry=True)

    def _reply(self, response: Any, content: bytes) -> Reply:
        return Reply(response.status_code, content, self.model.key, response.headers.get("retry-after"))


def _new_client(model: ServerModel) -> Any:
    try:
        import openai
    except ImportError:
        raise MissingExtra("boost", "a server's model") from None
    # Ignores redirects, which would send the key to another server, and, for a server on this machine, proxies from the
    # environment.
    client: Any = openai.AsyncOpenAI(
        api_key=model.key,
        admin_api_key="",
        base_url=model.address,
        timeout=openai.Timeout(model.timeout, connect=min(CONNECT_TIMEOUT, model.timeout)),
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, trust_env=not model.on_this_machine),
    )
    client.organization = client.project = None  # the SDK reads them from the environment, for OpenAI's servers only
    return client


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop that all servers share. It runs in its own thread, so that requests can be cancelled."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # silences errors of requests that are interrupted at exit
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _close(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Closes a client's connections in the thread that uses them."""
    asyncio.run_coroutine_threadsafe(client.close(), loop)
