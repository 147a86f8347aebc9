"""What requests will cost, before they are sent: tokens by rules of thumb, and the price where the backend has one."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.boost.types import Backend, Request, prices_of

LETTERS_PER_TOKEN, TOKENS_PER_PICTURE = 4, 1000


def tokens_read(request: Request) -> int:
    """About how many tokens the model reads."""
    letters = sum(len(message.text) for message in request.messages)
    return letters // LETTERS_PER_TOKEN + (TOKENS_PER_PICTURE if request.picture is not None else 0)


def estimate(first: Sequence[Request], again: Sequence[Request], backend: Backend) -> str:
    """What ``first`` requests cost, and at most, with a second try of each and the tries ``again`` of earlier answers.

    Such as ``12 requests expected, at most 24 with second tries; about 12,036 tokens in and up to 3,072 out, at most
    24,072 and 6,144``. ``again`` are expected.
    """
    expected, most = [*first, *again], [*first, *first, *again]
    (low_in, low_out), (high_in, high_out) = (
        (sum(map(tokens_read, requests)), sum(request.max_tokens for request in requests))
        for requests in (expected, most)
    )
    line = (
        f"{len(expected):,} requests expected, at most {len(most):,} with second tries of bad answers; about "
        f"{low_in:,} tokens in and up to {low_out:,} out, at most {high_in:,} and {high_out:,}"
    )
    if (prices := prices_of(backend)) is not None:
        low, high = ((i * prices[0] + o * prices[1]) / 1e6 for i, o in ((low_in, low_out), (high_in, high_out)))
        line += f"; cost up to {low:.2f}, at most {high:.2f} (a picture taken as {TOKENS_PER_PICTURE:,} tokens)"
    return line
