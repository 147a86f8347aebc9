"""Reads requests: the JSON body within a limit, its fields, and numbers in the path."""

from __future__ import annotations

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from tellapart.errors import UsageError

LARGEST_POST = 64 * 1024  # bytes
MAX_DIGITS = 18  # of a number in text; Python refuses to convert more than 4,300
JSON_NAMES = {dict: "an object", list: "a list", str: "text", int: "an integer"}


async def read_body(request: Request, most: int = LARGEST_POST) -> dict[str, Any]:
    """Reads the JSON object in a POST body. Raises `UsageError` for anything else and for more than ``most`` bytes."""
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise UsageError(f"the request exceeds {most:,} bytes")
    except ClientDisconnect:
        raise UsageError("the connection was closed before the whole request arrived") from None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UsageError("expected a JSON object")
    return body


def want(body: dict[str, Any], name: str, kind: type) -> Any:
    """Returns a field of the body. Raises `UsageError` if it does not have the expected type."""
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and abs(value) >= 1 << 63):
        found = json.dumps(value)[:80] if name in body else "nothing"
        raise UsageError(f"{name}: expected {JSON_NAMES[kind]}, got {found}")
    return value


def within(number: int, count: int, what: str) -> int:
    """Returns the number. Raises `UsageError` if it is not in 0..count − 1."""
    if not 0 <= number < count:
        raise UsageError(f"no {what} {number}; there are {count:,}, numbered from 0")
    return number


def path_number(request: Request, count: int, what: str) -> int:
    """Returns the ``number`` in a request's path. Raises a 404 if it is not in 0..count − 1."""
    number = decimal(request.path_params["number"])
    if number is None or number >= count:
        raise HTTPException(404, f"no such {what}; there are {count:,}, numbered from 0")
    return number


def decimal(text: str) -> int | None:
    """Returns the number that a text of at most `MAX_DIGITS` ASCII digits spells, or None if it is anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None
