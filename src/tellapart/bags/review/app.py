"""The review page: a session with bags, numbered pictures and decisions; the routes; and the server.

Requests contain numbers or fixed words, never paths. Only browsers on this machine can use the page. A request must
name this host (protection against DNS rebinding), and a writing request must come from this page (Origin) with a token
that only this page can read.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tellapart.bags.file import Bag, check_known, read_bags
from tellapart.bags.review.store import (
    FACETS,
    Conflict,
    Decision,
    DecisionStore,
    agreements,
    bag_key,
    decisions_of,
    reviewer_name,
)
from tellapart.data import Dataset, open_many
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.types import Item
from tellapart.utils import web
from tellapart.utils.web import (
    SameOrigin,
    encode_picture,
    own_origins,
    part_routes,
    path_number,
    read_body,
    want,
    within,
)

LONGEST_SIDE = 1200  # pixels of a picture on the page
KEPT_PICTURES = 64  # encoded pictures in memory


@dataclass
class Review:
    """A review session: bags and their pictures, numbered from 0 in the order of the file."""

    path: Path
    bags: list[Bag]
    items: list[Item]
    store: DecisionStore
    reviewer: str | None = None
    keys: list[str] = field(init=False)
    numbers: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = [bag_key(bag.ids) for bag in self.bags]
        place = {item.id: number for number, item in enumerate(self.items)}
        self.numbers = [[place[id_] for id_ in bag.ids] for bag in self.bags]
        self.encoded = functools.lru_cache(KEPT_PICTURES)(self._encoded)

    def state(self, reviewer: str | None) -> dict[str, Any]:
        """Returns the page's state except captions and pixels. Hides other reviewers' decisions."""
        standing = self.store.standing()
        return {
            "file": self.path.name,
            "reviewer": self.reviewer,
            "facets": FACETS,
            "bags": [
                {"pictures": numbers, "similarity": bag.similarity if bag.similarity == bag.similarity else None}
                for bag, numbers in zip(self.bags, self.numbers, strict=True)
            ],
            "export": self.export_command(),
            **self.of_reviewer(reviewer, standing),
            **self.summary(standing),
        }

    def export_command(self) -> str:
        """Returns the command that exports the curated benchmark."""
        own = [] if self.store.path == decisions_of(self.path) else ["--decisions", str(self.store.path)]
        return shlex.join(["tellapart", "bags", "export", str(self.path), *own])

    def of_reviewer(self, reviewer: str | None, standing: Sequence[Decision]) -> dict[str, Any]:
        """Returns a reviewer's valid decisions by bag number, and the id of the decision that undo would revert."""
        own = {d.bag: d for d in standing if d.reviewer == reviewer}
        here = {number: decision_json(own[key]) for number, key in enumerate(self.keys) if key in own}
        return {"decisions": here, "last": max((d.id for d in own.values()), default=None)}

    def summary(self, standing: Sequence[Decision]) -> dict[str, Any]:
        """Returns the reviewers' progress and agreement."""
        keys = set(self.keys)
        here = [decision for decision in standing if decision.bag in keys]
        counts: dict[str, dict[str, int]] = {}
        for decision in here:
            own = counts.setdefault(decision.reviewer, {"keep": 0, "drop": 0})
            own[decision.verdict] += 1
        reviewers = [{"name": name, **own} for name, own in sorted(counts.items())]
        return {"reviewers": reviewers, "agreement": [pair.to_json() for pair in agreements(here)]}

    def captions(self, bag: int) -> list[dict[str, Any]]:
        """Returns the ids and captions of a bag's pictures."""
        items = [self.items[number] for number in self.numbers[bag]]
        return [{"id": item.id, "captions": list(item.references)} for item in items]

    def _encoded(self, number: int) -> tuple[bytes, str]:
        """Returns the encoded picture and its media type. Raises `PictureError`."""
        return encode_picture(self.items[number].picture.image(), LONGEST_SIDE)


def open_review(
    path: Path, data: Sequence[str] = (), decisions: Path | None = None, reviewer: str | None = None
) -> Review:
    """Opens a review of a file of bags, their pictures, and the decisions so far.

    data: the pictures' data. Default: the data that the bags were mined from.
    decisions: the decisions file. Default: ``bags.review.sqlite`` beside the bags.
    Raises `UsageError` for bags that name missing pictures, before it opens anything for writing.
    """
    file = read_bags(path)
    if not data and not file.header.data:
        raise UsageError(f"{path} does not record where its pictures are; run: tellapart bags review {path} FOLDER")
    dataset = open_many(data) if data else _mined_from(path, file.header.data)
    check_known(str(path), file.bags, {item.id for item in dataset})
    used = {id_ for bag in file.bags for id_ in bag.ids}
    items = [item for item in dataset if item.id in used]
    return Review(path, file.bags, items, DecisionStore.open(decisions or decisions_of(path)), reviewer)


def _mined_from(path: Path, data: str) -> Dataset:
    """Opens the data that a file of bags names: one specification, or several separated by spaces."""
    try:
        return open_many([data])
    except UsageError as error:
        with contextlib.suppress(UsageError):
            if len(specs := data.split(" ")) > 1:
                return open_many(specs)
        raise UsageError(
            f"{error} (the location is stored in {path.name}; to override it, specify the pictures after the file)"
        ) from None


def decision_json(decision: Decision) -> dict[str, Any]:
    """Returns the JSON of a decision for its reviewer's page."""
    return {
        "id": decision.id,
        "at": decision.at,
        "verdict": decision.verdict,
        "facets": list(decision.facets),
        "note": decision.note,
    }


TOKEN = "x-review-token"


def create_app(review: Review, port: int) -> ASGIApp:
    """Creates the application for a server that listens on the loopback address at ``port``."""
    token = secrets.token_urlsafe(32)

    def state(request: Request) -> Response:
        name = request.query_params.get("reviewer")
        reviewer = reviewer_name(name) if name else None
        return JSONResponse({"token": token, **review.state(reviewer)}, headers={"Cache-Control": "no-store"})

    def captions(request: Request) -> Response:
        return JSONResponse(review.captions(path_number(request, len(review.bags), "bag")))

    def picture(request: Request) -> Response:
        number = path_number(request, len(review.items), "picture")
        try:
            data, kind = review.encoded(number)
        except PictureError as error:
            return PlainTextResponse(str(error), status_code=410)
        return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    async def decide(request: Request) -> Response:
        return await run_in_threadpool(write_decision, await read_body(request))

    async def undo(request: Request) -> Response:
        return await run_in_threadpool(write_undo, await read_body(request))

    def write_decision(body: dict[str, Any]) -> Response:
        bag = within(want(body, "bag", int), len(review.bags), "bag")
        facets = want(body, "facets", list)
        if not all(isinstance(facet, str) for facet in facets):
            raise UsageError("facets: expected a list of names")
        reviewer = reviewer_name(want(body, "reviewer", str))
        replaces = None if body.get("replaces") is None else want(body, "replaces", int)
        made = review.store.decide(
            reviewer,
            review.keys[bag],
            want(body, "verdict", str),
            facets,
            want(body, "note", str),
            replaces=replaces,
        )
        return JSONResponse({"decision": decision_json(made), **progress(reviewer)})

    def write_undo(body: dict[str, Any]) -> Response:
        reviewer = reviewer_name(want(body, "reviewer", str))
        undone = review.store.undo(reviewer, want(body, "decision", int))
        bag = review.keys.index(undone.bag) if undone.bag in review.keys else None
        return JSONResponse({"bag": bag, "undone": decision_json(undone), **progress(reviewer)})

    def progress(reviewer: str) -> dict[str, Any]:
        standing = review.store.standing()
        return {**review.of_reviewer(reviewer, standing), **review.summary(standing)}

    routes = [
        *part_routes("tellapart.bags.review"),
        Route("/api/state", state),
        Route("/api/bags/{number}/captions", captions),
        Route("/pictures/{number}", picture),
        Route("/api/decisions", decide, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={TellapartError: error_response})
    return SameOrigin(app, own_origins(port), (TOKEN, token))


def error_response(_: Request, error: Exception) -> Response:
    """Returns an error as a JSON response with a one-line message."""
    status = 409 if isinstance(error, Conflict) else 400 if isinstance(error, UsageError) else 500
    current = decision_json(error.current) if isinstance(error, Conflict) and error.current else None
    return JSONResponse({"error": str(error), "current": current}, status_code=status)


def server_of(review: Review, listener: socket.socket) -> Any:
    """Creates the page's uvicorn server; ``run(sockets=[listener])`` serves until ``should_exit``."""

    return web.server_of(create_app(review, listener.getsockname()[1]))


def serve(review: Review, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C. Calls ``ready`` with the address first."""

    try:
        web.serve(create_app(review, listener.getsockname()[1]), listener, ready)
    finally:
        review.store.close()
