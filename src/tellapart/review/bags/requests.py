"""Requests of the bags page."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tellapart.bags.review.store import Conflict, reviewer_name
from tellapart.errors import UsageError
from tellapart.review.app import Page
from tellapart.review.bags.session import BagReview, decision_json
from tellapart.utils.web.requests import path_number, want, within


def bags_page(review: BagReview) -> Page:
    """Returns the page on which a person reviews bags."""

    def state(request: Request) -> dict[str, Any]:
        name = request.query_params.get("reviewer")
        return review.state(reviewer_name(name) if name else None)

    def captions(request: Request) -> list[dict[str, Any]]:
        return review.captions(path_number(request, len(review.bags), "bag"))

    def decide(body: dict[str, Any]) -> dict[str, Any]:
        bag = within(want(body, "bag", int), len(review.bags), "bag")
        facets = want(body, "facets", list)
        if not all(isinstance(facet, str) for facet in facets):
            raise UsageError("facets: expected a list of names")
        reviewer = reviewer_name(want(body, "reviewer", str))
        replaces = None if body.get("replaces") is None else want(body, "replaces", int)
        decision = review.store.decide(
            reviewer,
            review.keys[bag],
            want(body, "verdict", str),
            facets,
            want(body, "note", str),
            replaces=replaces,
        )
        return {"decision": decision_json(decision), **progress(reviewer)}

    def undo(body: dict[str, Any]) -> dict[str, Any]:
        reviewer = reviewer_name(want(body, "reviewer", str))
        undone = review.store.undo(reviewer, want(body, "decision", int))
        bag = review.keys.index(undone.bag) if undone.bag in review.keys else None
        return {"bag": bag, "undone": decision_json(undone), **progress(reviewer)}

    def progress(reviewer: str) -> dict[str, Any]:
        standing = review.store.standing()
        return {**review.of_reviewer(reviewer, standing), **review.summary(standing)}

    return Page(
        "tellapart.review.bags",
        review.items,
        gets={"/api/state": state, "/api/bags/{number}/captions": captions},
        posts={"/api/decisions": decide, "/api/undo": undo},
        errors={Conflict: conflict_response},
    )


def conflict_response(_: Request, error: Any) -> Response:
    """Returns a `Conflict` as a JSON response with the valid decision."""
    current = decision_json(error.current) if error.current else None
    return JSONResponse({"error": str(error), "current": current}, status_code=409)
