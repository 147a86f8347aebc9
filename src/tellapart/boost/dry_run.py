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
    """A request whose answer the ledger lacks. ``attempt``: 1 if it retries a bad answer, otherwise 0.

    notes: by the address of each choice that the request asks for.
    """

    request: Request
    attempt: int
    notes: Mapping[str, Note]

    @property
    def address(self) -> str:
        """The address of the first choice."""
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
    """Returns the requests in the order of the items. Equal requests count once; unreadable pictures have none."""
    job = _DryRun(stages, ledger)
    for item in items:
        job.boost(item)
    return job.missing
