"""Finds the requests that a job would send now, without sending them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tellapart.boost.job import BoostJob
from tellapart.boost.ledger import Ledger, Note
from tellapart.boost.types import Answer, Request, Stage, UnansweredError
from tellapart.types import Item


@dataclass(frozen=True, slots=True)
class MissingAnswer:
    """A request whose answer is not in the ledger. ``attempt``: 1 if it retries a bad answer, otherwise 0.

    notes: maps the address of each choice that the request asks for to its note.
    """

    request: Request
    attempt: int
    notes: Mapping[str, Note]

    @property
    def address(self) -> str:
        """The first choice's address."""
        return next(iter(self.notes))


class _DryRun(BoostJob):
    def __init__(self, stages: Sequence[Stage], ledger: Ledger) -> None:
        super().__init__([replace(stage, edit=None) for stage in stages], ledger)
        self.missing: list[MissingAnswer] = []
        self._addresses: set[str] = set()

    def _send(self, stage: Stage, request: Request, notes: Mapping[str, Note], attempt: int) -> Answer:
        if self._addresses.isdisjoint(notes):
            self.missing.append(MissingAnswer(request, attempt, notes))
            self._addresses.update(notes)
        raise UnansweredError(f"{stage.backend.name}: not sent")


def missing_answers(stages: Sequence[Stage], items: Iterable[Item], ledger: Ledger) -> list[MissingAnswer]:
    """Returns the requests that would be sent, in item order.

    Equal requests count once. Items with unreadable pictures have no requests.
    """
    job = _DryRun(stages, ledger)
    for item in items:
        job.boost(item)
    return job.missing
