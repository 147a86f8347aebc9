"""What a request may hold: a JSON object of limited size, with fields of known kinds; anything else is one line."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from tellapart.errors import UsageError

LARGEST_POST = 64 * 1024  # bytes


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object of a post. Raises `UsageError` for anything else, and for more than `LARGEST_POST` bytes."""
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > LARGEST_POST:
                raise UsageError(f"a request of more than {LARGEST_POST:,} bytes")
    except ClientDisconnect:
        raise UsageError("the connection was closed before the request was whole") from None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UsageError("expected a JSON object")
    return body


def want(body: dict[str, Any], name: str, kind: type) -> Any:
    """A field of that kind, or a `UsageError`."""
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{name}: expected {kind.__name__}, found {json.dumps(value)[:80]}")
    return value


def within(number: int, count: int, what: str) -> int:
    """A number from 0 to count − 1, or a `UsageError`."""
    if not 0 <= number < count:
        raise UsageError(f"no {what} {number}; there are {count:,}, from 0 on")
    return number
