"""The types that boosting uses throughout: request, answer, backend and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item, Picture

IN_USER_TURN = "the system prompt is sent as part of the user turn"
REDACTED = "[API key]"  # replaces an API key in a server's replies


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``role`` is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a backend. All fields except ``truth``, ``item``, ``n`` and ``lenient`` are part of the answer's
    address.

    picture: the picture to show with the last user message.
    max_tokens: maximum length of the answer, in the model's tokens.
    temperature, top_p: sampling settings. If None, a server uses its defaults, and a local model decodes greedily.
    n: number of choices, which are sampled independently.
    logprobs: whether to return the log-probabilities of the answer's tokens.
    scored: whether to return the log-probabilities of the tokens in the last (assistant) message instead of generating.
    schema: a JSON schema that the answer must match, or "" for plain text.
    lenient: whether to accept answers without ``logprobs`` if the server does not support them. Not sent or hashed.
    truth: a `Scene` for the scripted backend. Not sent or hashed.
    item: the item's id, for descriptions from a file. Not sent or hashed.
    """

    messages: tuple[Message, ...]
    picture: Picture | None = None
    temperature: float | None = None
    max_tokens: int = 256
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    truth: Any = None
    n: int = 1
    logprobs: bool = False
    scored: bool = False
    item: str = ""
    schema: str = ""
    lenient: bool = False

    def without_system(self) -> Request:
        """Returns the request with its system prompt moved to the first user turn."""
        if not self.messages or self.messages[0].role != "system":
            return self
        system, first, *others = self.messages
        return replace(self, messages=(Message(first.role, f"{system.text}\n\n{first.text}"), *others))


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer.

    prompt_tokens, completion_tokens: number of tokens, including those of the other choices.
    finish: "stop", "length" if the answer was truncated at ``max_tokens``, or the server's own reason.
    tokens: text and log-probability (in nats) of each token, if requested. Bytes of partial characters are lone
        surrogates (``surrogateescape``).
    others: the other choices.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"
    tokens: tuple[tuple[str, float], ...] = ()
    others: tuple[Answer, ...] = ()


class Backend(Protocol):
    """A model that answers requests, on this machine or on a server."""

    name: str
    """The model's name, such as "openai:MODEL". It is part of the address under which answers are stored."""

    def complete(self, request: Request) -> Answer:
        """Answers one request. Several threads may call this method concurrently. Raises `BackendError` if the request
        fails.
        """
        ...


class BackendError(TellapartError):
    """Raised if a request received no answer.

    retry: whether another attempt can succeed.
    after: how many seconds the server asked the client to wait. 0.0 if the server asked it to wait but did not say how
    long, None if the server did not ask it to wait.
    fatal: whether no request can succeed (e.g. because the key is wrong or the model unknown), so that the job ends.
    """

    def __init__(self, message: str, *, retry: bool = False, after: float | None = None, fatal: bool = False) -> None:
        super().__init__(message)
        self.retry, self.after, self.fatal = retry, after, fatal

    def reworded(self, message: str, *, fatal: bool) -> BackendError:
        """Returns a copy with another message and another ``fatal``."""
        return BackendError(message, retry=self.retry, after=self.after, fatal=fatal)


class UnansweredError(BackendError):
    """Raised for a request that its batch did not answer. Other requests may still have answers."""


class LacksFeature(BackendError):
    """Raised if the server lacks a feature that all of a job's requests need. Running the job again would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fatal=True)


def cost_of(backend: Backend, tokens_in: int, tokens_out: int) -> float | None:
    """Returns the cost of these tokens, or None if the backend has no ``prices`` per million tokens."""
    prices: tuple[float, float] | None = getattr(backend, "prices", None)
    return None if prices is None else (tokens_in * prices[0] + tokens_out * prices[1]) / 1e6


def most_choices(backend: Backend) -> int:
    """Returns the maximum number of choices per request, which is 1 if the backend has no ``most_choices``."""
    most: int = getattr(backend, "most_choices", 1)
    return most


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage, which sends one request to one model per item. Its functions take the earlier stages' texts by stage
    name.

    prompt: the full text of the prompt file. Changing it invalidates only this stage's answers.
    check: returns why an answer is bad, or None if it is good.
    build_retry: builds a different request after a bad answer, which is the last argument.
    edit: turns a good answer and its text into the stage's text.
    group: stages in the same group sample answers to the same question, so that one request may ask for the choices of
    several stages.
    """

    name: str
    backend: Backend
    prompt: str
    build_request: Callable[[Item, Mapping[str, str]], Request]
    check: Callable[[Item, Mapping[str, str], str], str | None]
    build_retry: Callable[[Item, Mapping[str, str], str], Request]
    edit: Callable[[Item, Mapping[str, str], Answer, str], str] | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Boosted:
    """An item's result.

    texts: the good answers by stage.
    bad: why the other stages have no good answer.
    others: answers of the stages in `stages.PER_REFERENCE` for the second reference, the third, and so on.
    unanswered: whether an answer is missing because a server failed, so that running the job again may succeed.
    unreadable: the error if the picture cannot be read. In this case, the item is left out of the result.
    """

    item: Item
    texts: Mapping[str, str]
    bad: Mapping[str, str] = field(default_factory=dict)
    unanswered: bool = False
    unreadable: PictureError | None = None
    others: tuple[Mapping[str, str], ...] = ()
