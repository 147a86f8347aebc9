"""Types that the parts of boosting share: request, answer, backend and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item, Picture

REDACTED = "[API key]"  # stands in a server's words for an API key that it repeats


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``role`` is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a backend. Every field but ``truth`` is part of the address under which the answer is stored.

    ``picture`` is shown with the last user message. ``max_tokens`` bounds the answer, in the model's own tokens.
    ``temperature`` and ``top_p`` None: the server's default, or greedy by a model of this machine.
    ``truth`` is a `Scene` where the data are `scenes`, for the scripted backend: it is neither sent nor hashed.
    """

    messages: tuple[Message, ...]
    picture: Picture | None = None
    temperature: float | None = None
    max_tokens: int = 256
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    truth: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer. ``finish`` is "stop", "length" if ``max_tokens`` cut it, or the server's own reason."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"


class Backend(Protocol):
    """A model that answers requests, local or behind a server."""

    name: str
    """Such as "openai:MODEL": part of the address under which answers are kept."""

    def complete(self, request: Request) -> Answer:
        """Answer one request. Several threads may call at once. Raises `BackendError`."""
        ...


class BackendError(TellapartError):
    """A request without an answer.

    ``retry``: another attempt may succeed. ``after``: the server asked to wait, in seconds (0.0 if it gave no time).
    ``fatal``: no request can succeed (a wrong key, an unknown model), so the job ends.
    """

    def __init__(self, message: str, *, retry: bool = False, after: float | None = None, fatal: bool = False) -> None:
        super().__init__(message)
        self.retry, self.after, self.fatal = retry, after, fatal


def prices_of(backend: Backend) -> tuple[float, float] | None:
    """The price of a million input and output tokens; None where the backend has no ``prices``."""
    return getattr(backend, "prices", None)


@dataclass(frozen=True, slots=True)
class Stage:
    """One request to one model about every item; ``answers`` are the earlier stages' texts, by stage name.

    ``prompt`` is the full text of the prompt's files: a changed prompt changes the address of this stage's answers,
    and of no other's. ``check`` returns why an answer is bad, or None; ``build_retry`` makes the second,
    different request after a bad answer (its last argument).
    """

    name: str
    backend: Backend
    prompt: str
    build_request: Callable[[Item, Mapping[str, str]], Request]
    check: Callable[[Item, Mapping[str, str], str], str | None]
    build_retry: Callable[[Item, Mapping[str, str], str], Request]


@dataclass(frozen=True, slots=True)
class Boosted:
    """The result for an item: good answers by stage, and why the other stages have none.

    ``unanswered``: a server failed, so the same job may do better another time. ``unreadable``: what is wrong with the
    picture; such an item is left out of the result.
    """

    item: Item
    texts: Mapping[str, str]
    bad: Mapping[str, str] = field(default_factory=dict)
    unanswered: bool = False
    unreadable: PictureError | None = None
