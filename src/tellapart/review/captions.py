"""Handles the requests of the captions page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from tellapart.captions.store import Edit, StoredCaption
from tellapart.errors import UsageError
from tellapart.review.app import Page
from tellapart.review.batch_edits import prepending, replacing, stating, tagging
from tellapart.review.session import ReviewSession, Saved
from tellapart.utils.web.requests import path_number, want, within

LARGEST_BATCH = 4 << 20  # bytes; enough for the numbers of all rows of a large folder


def captions_page(session: ReviewSession) -> Page:
    """Returns the page on which a person reviews the captions of a folder."""
    count = len(session.ids)

    def since(request: Request) -> dict[str, Any]:
        revision = request.query_params.get("revision", "")
        look = request.query_params.get("look") == "1"
        return session.since(int(revision) if revision.isdecimal() else 0, look=look)

    def write(body: dict[str, Any]) -> dict[str, Any]:
        edits = want(body, "edits", dict)
        if not all(key.isdecimal() and isinstance(value, dict) for key, value in edits.items()):
            raise UsageError("edits: expected an object that maps picture numbers to edits")
        rows = {within(int(key), count, "picture"): value for key, value in edits.items()}
        return answer_of(session, session.write(rows, str(body.get("what") or "edit")[:40]))

    def batch(body: dict[str, Any]) -> dict[str, Any]:
        what = want(body, "what", str)
        return answer_of(session, session.batch(numbers_in(body, count), what, batch_edit(what, body)))

    def look_alikes(body: dict[str, Any]) -> dict[str, Any]:
        return session.look_alikes(within(want(body, "number", int), count, "picture"), want(body, "text", str))

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
            "/api/undo": lambda body: answer_of(session, session.undo(want(body, "change", str))),
            "/api/recaption": lambda body: answer_of(session, session.recaption(numbers_in(body, count))),
            "/api/look-alikes": look_alikes,
        },
        largest_post=LARGEST_BATCH,
    )


def batch_edit(what: str, body: Mapping[str, Any]) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that a batch request asks for. Raises `UsageError` if the request is invalid."""
    text = str(body.get("text") or "")
    if what == "replace":
        flags = {name: bool(body.get(name)) for name in ("case", "whole_words")}
        return replacing(text, str(body.get("by") or ""), **flags)
    if what == "trigger":
        return prepending(text)
    if what in ("add tag", "remove tag"):
        return tagging(text, remove=what == "remove tag")
    if what in ("accept", "do not accept"):
        return stating("accepted", what == "accept")
    raise UsageError(f"what: expected replace, trigger, add tag, remove tag or accept, got {what[:40]!r}")


def numbers_in(body: Mapping[str, Any], count: int) -> list[int]:
    """Returns the ``numbers`` in a request. Raises `UsageError` unless they are a list of picture numbers."""
    numbers = want(dict(body), "numbers", list)
    if not all(type(number) is int for number in numbers):
        raise UsageError("numbers: expected a list of numbers")
    return [within(number, count, "picture") for number in dict.fromkeys(numbers)]


def answer_of(session: ReviewSession, saved: Saved) -> dict[str, Any]:
    """Returns the response to a change, with the current state of the changed rows."""
    rows = {number: session.row(number) for number in saved.rows}
    return {"rows": rows, "conflicts": saved.conflicts, "message": saved.message, **session.undoable()}
