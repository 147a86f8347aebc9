"""Types that the parts of boosting share: request, answer, backend and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item, Picture

IN_USER_TURN = "the system prompt goes into the user turn"
REDACTED = "[API key]"  # stands in a server's words for an API key that it repeats


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``role`` is "system", "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a backend. Every field but ``truth``, ``item`` and ``n`` is part of the answer's address in the
    ledger.

    ``picture`` is shown with the last user message. ``max_tokens`` bounds the answer, in the model's own tokens.
    ``temperature`` and ``top_p`` None: the server's default, or greedy by a model of this machine.
    ``n``: choices wanted, each sampled by itself. ``logprobs``: the answer has those of its tokens. ``scored``: the
    last message is the assistant's, nothing is written, and the answer has the log-probabilities of its tokens.
    ``truth`` is a `Scene` where the data are `scenes`, for the scripted backend, and ``item`` the item's id, for
    descriptions from a file: they are neither sent nor hashed.
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

    def without_system(self) -> Request:
        """Returns the request with its system prompt in the first user turn."""
        if not self.messages or self.messages[0].role != "system":
            return self
        system, first, *others = self.messages
        return replace(self, messages=(Message(first.role, f"{system.text}\n\n{first.text}"), *others))


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer. ``finish`` is "stop", "length" if ``max_tokens`` cut it, or the server's own reason.

    ``tokens``: text and log-probability in nats of each token, where they were asked for; a text that is no whole
    letter has its bytes as lone surrogates (``surrogateescape``). ``others``: further choices, whose tokens are counted
    with this one's.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish: str = "stop"
    tokens: tuple[tuple[str, float], ...] = ()
    others: tuple[Answer, ...] = ()


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


class LacksFeature(BackendError):
    """A server that does not have what every request of a job needs: the same job fails again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fatal=True)


def prices_of(backend: Backend) -> tuple[float, float] | None:
    """The price of a million input and output tokens; None where the backend has no ``prices``."""
    return getattr(backend, "prices", None)


def most_choices(backend: Backend) -> int:
    """Returns how many choices one request to a backend may ask for; 1 where it has no ``most_choices``."""
    most: int = getattr(backend, "most_choices", 1)
    return most


@dataclass(frozen=True, slots=True)
class Stage:
    """One request to one model about every item; ``answers`` are the earlier stages' texts, by stage name.

    ``prompt`` is the full text of the prompt's files: a changed prompt changes the address of this stage's answers,
    and of no other's. ``check`` returns why an answer is bad, or None; ``build_retry`` makes the second,
    different request after a bad answer (its last argument). ``edit`` makes the stage's text of a good answer and what
    it says. Stages of one ``group`` are samples of one question: a request may ask for the choices of several.
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
    """The result for an item: good answers by stage, and why the other stages have none.

    ``others``: those of the stages `stages.PER_REFERENCE` for its second reference, its third, …, where each has one.
    ``unanswered``: a server failed, so the same job may do better another time. ``unreadable``: what is wrong with the
    picture; such an item is left out of the result.
    """

    item: Item
    texts: Mapping[str, str]
    bad: Mapping[str, str] = field(default_factory=dict)
    unanswered: bool = False
    unreadable: PictureError | None = None
    others: tuple[Mapping[str, str], ...] = ()
