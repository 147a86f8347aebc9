"""What the parts of boosting hand to each other: a request, its answer, who answers it, and the stages that ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tellapart.errors import TellapartError
from tellapart.types import Item, Picture


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``role`` is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a backend is asked. Every field but ``truth`` is part of the address under which its answer is kept.

    ``picture`` is shown with the last user message. ``max_tokens`` bounds the answer, in the model's own tokens.
    ``truth`` is a `Scene` where the data are `scenes`, for the scripted backend: it is neither sent nor hashed.
    """

    messages: tuple[Message, ...]
    picture: Picture | None = None
    temperature: float = 0.0
    max_tokens: int = 256
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    truth: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``finish`` is "stop", "length" where ``max_tokens`` cut it, or a server's own word."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"


class Backend(Protocol):
    """A model that answers, wherever it runs."""

    name: str
    """Such as "openai:MODEL": part of the address under which answers are kept."""

    def complete(self, request: Request) -> Answer:
        """Answer one request. Several threads may call at once. Raises `BackendError`."""
        ...


class BackendError(TellapartError):
    """No answer.

    ``retry``: asking again may help. ``after``: the server said "not now", and for how many seconds (0.0 where it did
    not say). ``fatal``: no request will fare better (a wrong key, an unknown model), so a job ends.
    """

    def __init__(self, message: str, *, retry: bool = False, after: float | None = None, fatal: bool = False) -> None:
        super().__init__(message)
        self.retry, self.after, self.fatal = retry, after, fatal


def prices_of(backend: Backend) -> tuple[float, float] | None:
    """What a million tokens cost, read and written; None where nobody said (a backend's ``prices``, if it has any)."""
    return getattr(backend, "prices", None)


@dataclass(frozen=True, slots=True)
class Stage:
    """One question to one model about every item; ``answers`` are the earlier stages' texts, by stage name.

    ``prompt`` is the full text of the prompt's files: a changed prompt changes the address of this stage's answers,
    and of no other's. ``check`` says why an answer is bad, or None; ``again`` is the second, different request after
    a bad answer (its last argument).
    """

    name: str
    backend: Backend
    prompt: str
    ask: Callable[[Item, Mapping[str, str]], Request]
    check: Callable[[Item, Mapping[str, str], str], str | None]
    again: Callable[[Item, Mapping[str, str], str], Request]
