"""What requests will cost, before they are sent: tokens by rules of thumb, and the price where the backend has one."""

from __future__ import annotations

from tellapart.boost.types import Backend, Request, prices_of

LETTERS_PER_TOKEN, TOKENS_PER_PICTURE = 4, 1000


def tokens_read(request: Request) -> int:
    """About how many tokens the model reads."""
    letters = sum(len(message.text) for message in request.messages)
    return letters // LETTERS_PER_TOKEN + (TOKENS_PER_PICTURE if request.picture is not None else 0)


def estimate(tokens_in: int, tokens_out: int, backend: Backend) -> str:
    """Such as ``about 1,010 tokens in, at most 256 out; at most about 0.02 in the prices' unit``."""
    line = f"about {tokens_in:,} tokens in, at most {tokens_out:,} out"
    if (prices := prices_of(backend)) is not None:
        line += f"; at most about {(tokens_in * prices[0] + tokens_out * prices[1]) / 1e6:.2f} in the prices' unit"
    return line
