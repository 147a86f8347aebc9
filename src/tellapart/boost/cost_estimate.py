"""Estimates what requests will cost before they are sent, in tokens and, if the backend has prices, in money."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from tellapart.boost.types import Backend, Request, cost_of

LETTERS_PER_TOKEN, TOKENS_PER_PICTURE = 4, 1000


@dataclass(frozen=True, slots=True)
class Load:
    """The number of requests, with their number of input tokens and maximum number of output tokens."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Load:
        """Returns the total load of these requests. The number of input tokens is an estimate."""
        total = cls()
        for request in requests:
            letters = sum(len(message.text) for message in request.messages)
            tokens = letters // LETTERS_PER_TOKEN + (TOKENS_PER_PICTURE if request.picture is not None else 0)
            total += cls(1, tokens, request.max_tokens * request.n)
        return total

    def __add__(self, other: Load) -> Load:
        return Load(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Load:
        return Load(*(count * times for count in astuple(self)))

    def cost(self, backend: Backend) -> float | None:
        """Returns the cost, or None if the backend has no prices."""
        return cost_of(backend, self.tokens_in, self.tokens_out)


def estimate(first: Sequence[Request], again: Sequence[Request], backend: Backend) -> str:
    """Describes the expected and maximum cost of requests.

    For example, ``12 requests expected, at most 24 including retries of unusable answers; about 12,036 tokens in and up
    to 3,072 out, at most 24,072 and 6,144``. The maximum includes one retry for each of the ``first`` requests.
    ``again``: expected number of retries of earlier answers.
    """
    once, repeated = Load.of(first), Load.of(again)
    return estimate_line(once + repeated, once * 2 + repeated, backend)


def estimate_line(expected: Load, most: Load, backend: Backend, note: str = "") -> str:
    """Describes the expected and maximum cost. ``note`` is inserted after the expected number of requests."""
    line = (
        f"{expected.requests:,} requests expected{note}, at most {most.requests:,} including "
        f"retries of unusable answers; about {expected.tokens_in:,} tokens in and up to "
        f"{expected.tokens_out:,} out, at most {most.tokens_in:,} and {most.tokens_out:,}"
    )
    low, high = expected.cost(backend), most.cost(backend)
    if low is not None and high is not None:
        line += f"; cost up to {low:.2f} without retries, up to {high:.2f} with them"
        line += f" (assuming {TOKENS_PER_PICTURE:,} tokens per picture)"
    return line
