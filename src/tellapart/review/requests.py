"""Handles the requests of the captions page."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from tellapart.errors import UsageError
from tellapart.review.app import Page
from tellapart.review.batch_edits import batch_edit
from tellapart.review.session import Answer, ReviewSession
from tellapart.utils.web.requests import decimal, path_number, want, within

LARGEST_BATCH = 4 << 20  # bytes; enough for the numbers of all rows of a large folder


def captions_page(session: ReviewSession) -> Page:
    """Returns the page on which a person reviews the captions of a folder."""
    count = len(session.ids)

    def since(request: Request) -> Answer:
        revision = decimal(request.query_params.get("revision", "")) or 0
        look = request.query_params.get("look") == "1"
        return session.since(revision, look=look)

    def write(body: dict[str, Any]) -> Answer:
        edits = want(body, "edits", dict)
        numbered = {number: value for key, value in edits.items() if (number := decimal(key)) is not None}
        if len(numbered) < len(edits) or not all(isinstance(value, dict) for value in numbered.values()):
            raise UsageError("edits: expected an object that maps picture numbers to edits")
        rows = {within(number, count, "picture"): value for number, value in numbered.items()}
        return session.write(rows, str(body.get("what") or "edit")[:40])

    def batch(body: dict[str, Any]) -> Answer:
        what = want(body, "what", str)
        return session.batch(numbers(body), what, batch_edit(what, body))

    def look_alikes(body: dict[str, Any]) -> Answer:
        return session.look_alikes(within(want(body, "number", int), count, "picture"), want(body, "text", str))

    def numbers(body: dict[str, Any]) -> list[int]:
        listed = want(body, "numbers", list)
        if not all(type(number) is int for number in listed):
            raise UsageError("numbers: expected a list of numbers")
        return [within(number, count, "picture") for number in dict.fromkeys(listed)]

    return Page(
        "tellapart.review",
        list(session.store.items.values()),
        gets={
            "/api/state": lambda _: session.state(),
            "/api/since": since,
            "/api/collisions": lambda _: session.collisions(),
            "/api/history/{number}": lambda request: session.history(path_number(request, count, "picture")),
        },
        posts={
            "/api/write": write,
            "/api/batch": batch,
            "/api/undo": lambda body: session.undo(want(body, "change", str)),
            "/api/recaption": lambda body: session.recaption(numbers(body)),
            "/api/look-alikes": look_alikes,
        },
        largest_post=LARGEST_BATCH,
    )
