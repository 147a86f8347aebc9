"""A bag review session: bags, numbered pictures and decisions."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.bags.file import Bag, check_known, read_bags
from tellapart.bags.review.agreement import agreements
from tellapart.bags.review.store import FACETS, Decision, DecisionStore, bag_key, decisions_of
from tellapart.data import Dataset, open_many
from tellapart.errors import UsageError
from tellapart.types import Item


@dataclass
class BagReview:
    """A review session: bags and their pictures, numbered from 0 in file order."""

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

    def state(self, reviewer: str | None) -> dict[str, Any]:
        """Returns the page's state without captions and pixels. Hides other reviewers' decisions."""
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


def open_review(
    path: Path, data: Sequence[str] = (), decisions: Path | None = None, reviewer: str | None = None
) -> BagReview:
    """Opens a review of a bags file: the bags, their pictures, and the decisions made so far.

    data: where to find the pictures. Default: the data that the bags were mined from.
    decisions: the decisions file. Default: ``bags.review.sqlite`` next to the bags.
    Raises `UsageError`, before opening anything for writing, if any of the bags' pictures are missing.
    """
    file = read_bags(path)
    if not data and not file.header.data:
        raise UsageError(f"{path} does not record where its pictures are; run: tellapart bags review {path} FOLDER")
    dataset = open_many(data) if data else _mined_from(path, file.header.data)
    check_known(str(path), file.bags, {item.id for item in dataset})
    used = {id_ for bag in file.bags for id_ in bag.ids}
    items = [item for item in dataset if item.id in used]
    return BagReview(path, file.bags, items, DecisionStore.open(decisions or decisions_of(path)), reviewer)


def _mined_from(path: Path, data: str) -> Dataset:
    """Opens the data recorded in a file of bags: one specification, or several separated by spaces."""
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
