"""A review session: the bags, their pictures by number, and the decisions."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.bags.file import check_known, read_bags
from tellapart.bags.mine import Bag
from tellapart.bags.review.agreement import agreements
from tellapart.bags.review.store import FACETS, Decision, DecisionStore, bag_key
from tellapart.data import Dataset, open_many
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.web.pictures import encode_picture

LONGEST_SIDE = 1200  # pixels of a picture as the page gets it
KEPT_PICTURES = 64  # encoded ones in memory


@dataclass
class Review:
    """Bags with their pictures, numbered from 0 in the order of the file."""

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
        """Everything that the page shows, but for captions and pixels. Other reviewers' decisions are hidden."""
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
        """The command that exports the curated benchmark."""
        own = [] if self.store.path == decisions_of(self.path) else ["--decisions", str(self.store.path)]
        return shlex.join(["tellapart", "bags", "export", str(self.path), *own])

    def of_reviewer(self, reviewer: str | None, standing: Sequence[Decision]) -> dict[str, Any]:
        """One reviewer's standing decisions by bag number, and the number of the one that undo would take back."""
        own = {d.bag: d for d in standing if d.reviewer == reviewer}
        here = {number: decision_json(own[key]) for number, key in enumerate(self.keys) if key in own}
        return {"decisions": here, "last": max((d.id for d in own.values()), default=None)}

    def summary(self, standing: Sequence[Decision]) -> dict[str, Any]:
        """The reviewers' progress and agreement."""
        keys = set(self.keys)
        here = [decision for decision in standing if decision.bag in keys]
        counts: dict[str, dict[str, int]] = {}
        for decision in here:
            own = counts.setdefault(decision.reviewer, {"keep": 0, "drop": 0})
            own[decision.verdict] += 1
        reviewers = [{"name": name, **own} for name, own in sorted(counts.items())]
        return {"reviewers": reviewers, "agreement": [pair.to_json() for pair in agreements(here)]}

    def captions(self, bag: int) -> list[dict[str, Any]]:
        """Ids and captions of a bag's pictures."""
        items = [self.items[number] for number in self.numbers[bag]]
        return [{"id": item.id, "captions": list(item.references)} for item in items]

    def _encoded(self, number: int) -> tuple[bytes, str]:
        """A picture for the browser and its type. Raises `PictureError`."""
        return encode_picture(self.items[number].picture.image(), LONGEST_SIDE)


def open_review(
    path: Path, data: Sequence[str] = (), decisions: Path | None = None, reviewer: str | None = None
) -> Review:
    """The bags of a file, their pictures, and the decisions so far (``bags.review.sqlite`` beside it by default).

    data: where the pictures are; by default where the file says that it was mined from. Raises `UsageError` for bags
    that name missing pictures, before anything is opened for writing.
    """
    file = read_bags(path)
    if not data and not file.header.data:
        raise UsageError(f"{path}: does not say where its pictures are; type: tellapart bags review {path} FOLDER")
    dataset = open_many(data) if data else _mined_from(path, file.header.data)
    check_known(str(path), file.bags, {item.id for item in dataset})
    used = {id_ for bag in file.bags for id_ in bag.ids}
    items = [item for item in dataset if item.id in used]
    return Review(path, file.bags, items, DecisionStore.open(decisions or decisions_of(path)), reviewer)


def _mined_from(path: Path, data: str) -> Dataset:
    """The pictures that a file of bags names: one specification, or several with spaces between them."""
    try:
        return open_many([data])
    except UsageError as error:
        with contextlib.suppress(UsageError):
            if len(specs := data.split(" ")) > 1:
                return open_many(specs)
        raise UsageError(f"{error} (so says {path.name}; or name the pictures after it)") from None


def decisions_of(bags: Path) -> Path:
    """The default file of decisions on a file of bags."""
    return bags.with_name(f"{bags.stem}.review.sqlite")


def decision_json(decision: Decision) -> dict[str, Any]:
    """A decision as its reviewer's page shows it."""
    return {
        "id": decision.id,
        "at": decision.at,
        "verdict": decision.verdict,
        "facets": list(decision.facets),
        "note": decision.note,
    }
